from conformance_emitters import EmitterTests


class TestParquet(EmitterTests):
    FORM = "parquet"
