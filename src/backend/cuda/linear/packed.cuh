/* Codes of linear/packed.h and their conversion to pairs of bf16 in registers. The packing is here
 * too, next to what it must agree with. */
#pragma once

#include "backend/cuda/code_pairs.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/linear/packed.h"

namespace {

// Four bytes as a word: the pair a in bytes 0 and 2, the pair b in 1 and 3.
__host__ __device__ inline uint32_t pack_int8(uint32_t a0, uint32_t a1, uint32_t b0, uint32_t b1) {
    return a0 | b0 << 8 | a1 << 16 | b1 << 24;
}

__device__ __forceinline__ uint32_t subtract_pair(uint32_t a, uint32_t b) {
    __nv_bfloat162 y =
        __hsub2(*reinterpret_cast<__nv_bfloat162 *>(&a), *reinterpret_cast<__nv_bfloat162 *>(&b));
    return *reinterpret_cast<uint32_t *>(&y);
}
__device__ __forceinline__ uint32_t multiply_pair(uint32_t a, uint32_t b) {
    __nv_bfloat162 y =
        __hmul2(*reinterpret_cast<__nv_bfloat162 *>(&a), *reinterpret_cast<__nv_bfloat162 *>(&b));
    return *reinterpret_cast<uint32_t *>(&y);
}

// word & MASK | bits as one instruction, which has room for one constant. The compiler makes two of
// it.
template <uint32_t MASK>
__device__ __forceinline__ uint32_t mask_and_set(uint32_t word, uint32_t bits) {
    uint32_t y;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(word), "n"(MASK), "r"(bits));
    return y;
}

// The integers in bytes 0 and 2: the low 7 bits plus 128 as bf16, less 128, or 256 if negative.
__device__ __forceinline__ uint32_t pair_of_int8(uint32_t word) {
    constexpr uint32_t OFFSET = 0x43004300; // 128 twice
    return subtract_pair(mask_and_set<0x007f007fu>(word, OFFSET),
                         mask_and_set<0x00800080u>(word, OFFSET));
}

// Eight 4-bit codes as a word. Pair p has the inputs 8 p and 8 p + 1.
__host__ __device__ inline uint32_t pack_u4(const uint8_t *codes) {
    uint32_t word = 0;
    for (int p = 0; p < 4; p++) {
        word |= static_cast<uint32_t>(codes[p * 8]) << p * 4;
        word |= static_cast<uint32_t>(codes[p * 8 + 1]) << (p * 4 + 16);
    }
    return word;
}

// The pairs as 128 + code: the codes are the low bits of bf16's mantissa.
constexpr float U4_OFFSET = 128;
__device__ __forceinline__ void unpack_u4(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t CODES = 0x000f000f, OFFSET = 0x43004300;
    pairs[0] = mask_and_set<CODES>(word, OFFSET);
    pairs[1] = mask_and_set<CODES>(word >> 4, OFFSET);
    pairs[2] = mask_and_set<CODES>(word >> 8, OFFSET);
    pairs[3] = mask_and_set<CODES>(word >> 12, OFFSET);
}

// Eight codes of e2m1 as a word, in the order of pack_u4. A pair of bf16 has a code's sign in bit
// 15 and its magnitude in bits 8 to 6. In each half of the word pair 0 is where bf16 has it, pair 1
// six bits lower, and pair 2 ten bits lower, where bits below 0 are the upper ones of the other
// half. Pair 3 takes what is left: four bits lower, but the magnitude's last bit four bits higher.
__host__ __device__ inline uint32_t pack_e2m1(const uint8_t *codes) {
    uint32_t word = 0;
    for (int half = 0; half < 2; half++) {
        uint32_t signs[4], magnitudes[4];
        for (int p = 0; p < 4; p++) {
            uint32_t code = codes[p * 8 + half];
            signs[p] = code >> 3, magnitudes[p] = code & 7;
        }
        word |=
            (signs[0] << 15 | magnitudes[0] << 6 | signs[1] << 9 | magnitudes[1] | signs[2] << 5 |
             signs[3] << 11 | magnitudes[3] >> 1 << 3 | (magnitudes[3] & 1) << 10)
            << half * 16;
        word |= magnitudes[2] << (half ? 12 : 28);
    }
    return word;
}

// The pairs times 2^-126: the sign in bit 15, exponent and mantissa in bits 8 to 6, also of 0.5.
__host__ __device__ __forceinline__ void unpack_e2m1(uint32_t word, uint32_t (&pairs)[4]) {
    constexpr uint32_t PAIR = 0x81c081c0, LAST = 0x00400040;
    pairs[0] = word & PAIR;
    pairs[1] = word << 6 & PAIR;
    pairs[2] = (word << 10 | word >> 22) & PAIR;
    pairs[3] = (word << 4 & (PAIR ^ LAST)) | (word >> 4 & LAST);
}

// The word of a group of int4 that has zeros.
__host__ __device__ inline uint32_t pack_group(uint32_t scale_bits, uint32_t zero) {
    return (scale_bits + 0x80u & 0xffffff00u) | zero;
}
// The group's zero plus U4_OFFSET, exact: 2^23 + zero is a float.
__device__ __forceinline__ float group_zero(uint32_t word) {
    return __uint_as_float(0x4b000000u | (word & 0xffu)) - (0x1p23f - U4_OFFSET);
}

// Parameters of a kernel.
template <weight_code CODE_, int GROUP_, bool OFFSETS_> struct packed_kind {
    static constexpr weight_code CODE = CODE_;
    static constexpr int GROUP = GROUP_; // 0: scales are of whole rows
    static constexpr bool OFFSETS = OFFSETS_; // floats beside the scales
    static constexpr bool ZEROS = CODE == WEIGHT_CODE_INT4 && !OFFSETS;
    // Scales are bytes, so a word has those of a span.
    static constexpr bool EXPONENTS = CODE == WEIGHT_CODE_E2M1 && GROUP == CUDA_PACKED_MINIMA_GROUP;
    static constexpr int BITS = CODE == WEIGHT_CODE_E4M3 || CODE == WEIGHT_CODE_INT8 ? 8 : 4;
    static constexpr int STEP = BITS == 8 ? 64 : 128; // inputs
    static constexpr int MULTIPLIES = STEP / 16; // matrix instructions for a step
    static constexpr int SPAN = GROUP > STEP ? GROUP : STEP;
    static constexpr int PER_GROUP = OFFSETS ? 2 : 1; // words
    // Of an output and a span.
    static constexpr int WORDS = GROUP && !EXPONENTS ? SPAN / GROUP * PER_GROUP : 1;
    // Four lanes need the same words. If there are many, each loads some.
    static constexpr bool IS_SPREAD = WORDS >= 4;
    static constexpr int LANE_WORDS = IS_SPREAD ? WORDS / 4 : WORDS;
    // Pairs of e4m3 and e2m1 are values times a power of 2. X_SCALE times x, and SUM_SCALE times
    // the sums, make up for it. All are powers of 2, and exact.
    static constexpr float VALUE_SCALE = CODE == WEIGHT_CODE_E4M3   ? 0x1p120f
                                         : CODE == WEIGHT_CODE_E2M1 ? 0x1p126f
                                                                    : 1.0f;
    static constexpr float X_SCALE = VALUE_SCALE > 1 ? 0x1p64f : 1.0f;
    static constexpr float SUM_SCALE = VALUE_SCALE / X_SCALE;
    static_assert(GROUP == 0 || GROUP >= 16, "a matrix instruction has inputs of one group");
};

// Calls run(kind) with the view's kind. The list agrees with cuda_packed_kept.
template <typename RUN>
auto with_kind(const cuda_linear_view &v, RUN run)
    -> decltype(run(packed_kind<WEIGHT_CODE_E4M3, 0, false>())) {
    bool is_16 = v.group == 16, is_32 = v.group == 32;
    if (v.code == WEIGHT_CODE_E4M3) {
        return v.group ? run(packed_kind<WEIGHT_CODE_E4M3, 128, false>())
                       : run(packed_kind<WEIGHT_CODE_E4M3, 0, false>());
    }
    if (v.code == WEIGHT_CODE_E2M1) {
        return is_16 ? run(packed_kind<WEIGHT_CODE_E2M1, 16, false>())
                     : run(packed_kind<WEIGHT_CODE_E2M1, 32, false>());
    }
    if (v.code == WEIGHT_CODE_INT8) {
        if (v.has_offsets) {
            return is_16 ? run(packed_kind<WEIGHT_CODE_INT8, 16, true>())
                         : run(packed_kind<WEIGHT_CODE_INT8, 32, true>());
        }
        if (is_16) return run(packed_kind<WEIGHT_CODE_INT8, 16, false>());
        if (is_32) return run(packed_kind<WEIGHT_CODE_INT8, 32, false>());
        return v.group ? run(packed_kind<WEIGHT_CODE_INT8, 128, false>())
                       : run(packed_kind<WEIGHT_CODE_INT8, 0, false>());
    }
    if (v.has_offsets && v.group <= CUDA_PACKED_MINIMA_GROUP) {
        return is_16 ? run(packed_kind<WEIGHT_CODE_INT4, 16, true>())
                     : run(packed_kind<WEIGHT_CODE_INT4, 32, true>());
    }
    if (is_16) return run(packed_kind<WEIGHT_CODE_INT4, 16, false>());
    if (is_32) return run(packed_kind<WEIGHT_CODE_INT4, 32, false>());
    return v.group == 64 ? run(packed_kind<WEIGHT_CODE_INT4, 64, false>())
                         : run(packed_kind<WEIGHT_CODE_INT4, 128, false>());
}

// The two pairs of a lane for matrix instruction number i of a step, times 1 / VALUE_SCALE; 128 +
// code of int4.
template <typename K>
__device__ __forceinline__ void unpack_pairs(uint4 codes, int i, uint32_t &first,
                                             uint32_t &second) {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    if constexpr (K::CODE == WEIGHT_CODE_E4M3) {
        unpack_e4m3(words[i], first, second);
    } else if constexpr (K::CODE == WEIGHT_CODE_INT8) {
        first = pair_of_int8(words[i]);
        second = pair_of_int8(words[i] >> 8);
    } else {
        uint32_t pairs[4];
        if constexpr (K::CODE == WEIGHT_CODE_E2M1) {
            unpack_e2m1(words[i / 2], pairs);
        } else {
            unpack_u4(words[i / 2], pairs);
        }
        first = pairs[i % 2 * 2], second = pairs[i % 2 * 2 + 1];
    }
}

// A scale and an offset of a group of inputs.
struct group_factors {
    float scale, offset; // -0 changes no bit of what it is added to
    uint32_t zeros; // 128 + zero twice, as bf16; of int4 with zeros
};
template <typename K>
__device__ __forceinline__ group_factors factors_of(uint32_t word, uint32_t offset) {
    if (K::ZEROS) {
        uint32_t zeros = __byte_perm(word, 0x43, 0x4040);
        return {__uint_as_float(word & 0xffffff00u), -0.0f, zeros};
    }
    return {__uint_as_float(word), K::OFFSETS ? __uint_as_float(offset) : -0.0f, 0x43084308u};
}

// Of the group's byte in a word of exponents.
__device__ __forceinline__ group_factors factors_of_exponent(uint32_t word, int group) {
    uint32_t exponent = __byte_perm(word, 0, 0x4440 | group), scale;
    // 2^-127, exponent 0, is a subnormal number. max() would be a comparison and a choice.
    asm("max.u32 %0, %1, %2;" : "=r"(scale) : "r"(exponent << 23), "n"(0x00400000));
    return {__uint_as_float(scale), -0.0f, 0};
}

// The pairs as the values of their codes, without the scale. All steps are exact.
template <typename K>
__device__ __forceinline__ void value_pairs(uint4 codes, int i, uint32_t zeros, uint32_t &first,
                                            uint32_t &second) {
    unpack_pairs<K>(codes, i, first, second);
    if constexpr (K::CODE == WEIGHT_CODE_INT4) {
        first = subtract_pair(first, zeros), second = subtract_pair(second, zeros);
    }
    if constexpr (K::VALUE_SCALE > 1) {
        constexpr uint32_t SCALE = K::CODE == WEIGHT_CODE_E4M3 ? 0x7b807b80 : 0x7e807e80;
        first = multiply_pair(first, SCALE), second = multiply_pair(second, SCALE);
    }
}

// The weights of a pair of values. Exact if scales are powers of 2, else rounded to bf16.
template <typename K>
__device__ __forceinline__ uint32_t weight_pair(uint32_t values, const group_factors &f) {
    if constexpr (K::EXPONENTS) {
        return multiply_pair(values, __byte_perm(__float_as_uint(f.scale), 0, 0x3232));
    }
    return pack_bf16(fmaf(bf16_low(values), f.scale, f.offset),
                     fmaf(bf16_high(values), f.scale, f.offset));
}

// Scales of a view, as kernels read them.
struct packed_scales {
    const uint32_t *words;
    const float *rows; // of whole rows; NULL: none
    int spans; // of a row
    bool is_shared;
};
inline packed_scales packed_scales_of(const cuda_linear_view &v) {
    uint32_t step = cuda_packed_step(weight_code_bits(v.code));
    uint32_t span = v.group > step ? v.group : step;
    return {v.group ? static_cast<const uint32_t *>(v.scales) : nullptr,
            v.group ? nullptr : static_cast<const float *>(v.scales), static_cast<int>(v.in / span),
            v.shares_scales};
}

// Where this lane's words of its output of a tile are.
template <typename K> struct lane_scales {
    const uint32_t *words; // of the first tile's first span
    int stride; // words between spans, which are counted through all tiles

    __device__ __forceinline__ lane_scales(const packed_scales &s, int lane) {
        bool is_shared = K::BITS == 8 && K::WORDS == 1 && s.is_shared;
        int own = K::IS_SPREAD ? lane * K::LANE_WORDS : lane / 4 * K::WORDS;
        words = s.words + (is_shared ? 0 : own);
        stride = is_shared ? 1 : CUDA_PACKED_TILE * K::WORDS;
    }
    __device__ __forceinline__ void load(uint32_t (&to)[K::LANE_WORDS], int span) const {
        const uint32_t *from = words + static_cast<ptrdiff_t>(span) * stride;
        if constexpr (K::GROUP == 0) {
            to[0] = 0;
        } else if constexpr (K::BITS == 8 && K::WORDS == 1) {
            to[0] = __ldg(from);
        } else if constexpr (K::LANE_WORDS == 1) {
            to[0] = __ldcs(from);
        } else if constexpr (K::LANE_WORDS == 2) {
            uint2 two = __ldcs(reinterpret_cast<const uint2 *>(from));
            to[0] = two.x, to[1] = two.y;
        } else {
            static_assert(K::LANE_WORDS == 4, "words");
            uint4 four = __ldcs(reinterpret_cast<const uint4 *>(from));
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        }
    }
};

// The words for span number `span` of a tile.
template <typename K>
__device__ __forceinline__ void load_scales(uint32_t (&to)[K::LANE_WORDS], const packed_scales &s,
                                            int tile, int span, int lane) {
    lane_scales<K>(s, lane).load(to, tile * s.spans + span);
}

// Word number i of a span, of those that were loaded. All lanes call it.
template <typename K>
__device__ __forceinline__ uint32_t scale_word(const uint32_t (&words)[K::LANE_WORDS], int i,
                                               int lane) {
    if (!K::IS_SPREAD) return words[i];
    return __shfl_sync(FULL_WARP, words[i % K::LANE_WORDS], (lane & ~3) | i / K::LANE_WORDS);
}
template <typename K>
__device__ __forceinline__ group_factors factors_in(const uint32_t (&words)[K::LANE_WORDS],
                                                    int group, int lane) {
    if constexpr (K::EXPONENTS) return factors_of_exponent(words[0], group);
    uint32_t first = scale_word<K>(words, group * K::PER_GROUP, lane);
    uint32_t second = K::OFFSETS ? scale_word<K>(words, group * K::PER_GROUP + 1, lane) : 0;
    return factors_of<K>(first, second);
}

} // namespace
