from conformance_emitters import EmitterTests


class TestKerchunk(EmitterTests):
    FORM = "kerchunk"
