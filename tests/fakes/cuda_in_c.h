/* What the kernels of checks take from CUDA, for C: one thread at a time. */

#include <string.h>

#define __device__
struct dim { unsigned x, y, z; };
static __thread struct dim blockIdx, threadIdx, gridDim, blockDim;
#define atomicAdd(to, value) (*(to) += (value))
static double __longlong_as_double(long long bits) { double value; memcpy(&value, &bits, 8); return value; }
static float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
#include "check.cu"
