from conformance_emitters import EmitterTests


class TestVrt(EmitterTests):
    FORM = "vrt"
    ROWS = False
