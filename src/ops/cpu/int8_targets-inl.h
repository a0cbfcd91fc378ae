// Which Highway targets have the vector path of products with int8 inputs;
// others take the plain one. Included once per target.
#undef ECPHORY_INT8_VECTORS
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || \
    HWY_TARGET == HWY_AVX3_DL
#define ECPHORY_INT8_VECTORS 1
#else
#define ECPHORY_INT8_VECTORS 0
#endif
