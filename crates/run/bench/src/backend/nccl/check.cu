// The data of checks, made and compared on the GPU: the same tables, blocks and places as in verify/mod.rs, which brings
// BLOCK and STARTS. Plain C, so that tests can run it without a GPU; NVRTC gets no headers.

#ifdef __cplusplus
#define KERNEL extern "C" __global__ void
#else
#define KERNEL static void
#endif

typedef unsigned char byte;
typedef unsigned int word;
typedef unsigned long long number;

/* The finalizer of splitmix64, as `mix` of verify/element.rs. */
static __device__ number mix(number value) {
    number z = value + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* Where in the table a block of a stream begins. */
static __device__ number begin(number block, number repetition, number source) {
    return mix(mix(mix(block) ^ repetition) ^ source) % STARTS;
}

static __device__ number load(const byte *from, number index, int element) {
    switch (element) {
    case 1: return from[index];
    case 2: return ((const unsigned short *)from)[index];
    case 4: return ((const word *)from)[index];
    default: return ((const number *)from)[index];
    }
}

static __device__ void store(byte *to, number index, int element, number bits) {
    switch (element) {
    case 1: to[index] = (byte)bits; break;
    case 2: ((unsigned short *)to)[index] = (unsigned short)bits; break;
    case 4: ((word *)to)[index] = (word)bits; break;
    default: ((number *)to)[index] = bits;
    }
}

/* 2 to the power of an exponent that a double holds. */
static __device__ double power(int exponent) {
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

/* The number that a small floating-point type's bits are, after IEEE 754; without infinities (OCP's E4M3), all but the
   greatest significand of the greatest exponent are numbers. */
static __device__ double small_float(number bits, int exponents, int significands, int has_infinities) {
    int bias = (1 << (exponents - 1)) - 1, top = (1 << exponents) - 1, full = (1 << significands) - 1;
    int exponent = (int)(bits >> significands) & top, significand = (int)bits & full;
    double sign = (bits >> (exponents + significands)) & 1 ? -1.0 : 1.0;
    if (exponent == top && (has_infinities || significand == full)) {
        int is_infinite = has_infinities && significand == 0;
        return sign * __longlong_as_double(is_infinite ? 0x7ff0000000000000ll : 0x7ff8000000000000ll);
    }
    if (exponent == 0) return sign * significand * power(1 - bias - significands);
    return sign * (significand + full + 1) * power(exponent - bias - significands);
}

/* `kind` counts the floating-point types: half, float, double, bfloat16, f8e4m3, f8e5m2. */
static __device__ double decode(number bits, int kind) {
    switch (kind) {
    case 0: return small_float(bits, 5, 10, 1);
    case 1: return (double)__uint_as_float((word)bits);
    case 2: return __longlong_as_double((long long)bits);
    case 3: return (double)__uint_as_float((word)bits << 16);
    case 4: return small_float(bits, 4, 3, 0);
    default: return small_float(bits, 5, 2, 1);
    }
}

/* Fills `count` elements from `to` on with those of a stream from `start` on. One thread block per block of data, in turn. */
KERNEL busbw_fill(byte *to, const byte *table, int element, number start, number count, number repetition, number source) {
    number first = start / BLOCK, last = (start + count + BLOCK - 1) / BLOCK, block, i;
    for (block = first + blockIdx.x; block < last; block += gridDim.x) {
        number from = begin(block, repetition, source);
        for (i = threadIdx.x; i < BLOCK; i += blockDim.x) {
            number index = block * BLOCK + i;
            if (index >= start && index < start + count)
                store(to, index - start, element, load(table, from + i, element));
        }
    }
}

/* Counts the elements from `found` on that are not those of a stream. No table: zeros are expected. `kind` is -1 for integers.
   Floating-point numbers may differ by the bounds at their place in the table, where there are bounds. */
KERNEL busbw_count_wrong(const byte *found, const byte *table, const double *bounds, int element, int kind, number start,
                         number count, number repetition, number source, number *wrong) {
    number first = start / BLOCK, last = (start + count + BLOCK - 1) / BLOCK, block, i, mine = 0;
    for (block = first + blockIdx.x; block < last; block += gridDim.x) {
        number from = begin(block, repetition, source);
        for (i = threadIdx.x; i < BLOCK; i += blockDim.x) {
            number index = block * BLOCK + i, is, expected;
            double off;
            if (index < start || index >= start + count) continue;
            is = load(found, index - start, element);
            expected = table ? load(table, from + i, element) : 0;
            if (is == expected) continue;
            if (kind < 0) {
                mine += 1;
                continue;
            }
            off = decode(expected, kind) - decode(is, kind);
            if (off < 0) off = -off;
            /* False also where the result is no number. */
            if (!(off <= (bounds ? bounds[from + i] : 0.0))) mine += 1;
        }
    }
    if (mine) atomicAdd(wrong, mine);
}
