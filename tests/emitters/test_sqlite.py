from conformance_emitters import EmitterTests


class TestSqlite(EmitterTests):
    FORM = "sqlite"
