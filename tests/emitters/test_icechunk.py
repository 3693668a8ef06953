from conformance_emitters import EmitterTests


class TestIcechunk(EmitterTests):
    FORM = "icechunk"
    EXACT = False
