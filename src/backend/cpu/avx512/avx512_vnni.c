/* 8-bit and 4-bit weights by AVX512_VNNI: VPDPBUSD adds four products of bytes to a 32-bit lane.
 * Many rows multiply 4-bit weights that were unpacked to bytes. Few rows multiply them as they are,
 * in registers. Both give the same sums, because integers are exact. */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/avx512_dots.h"

enum {
    FEW_ROWS_MAX = 4,
    FEW_BLOCKS_MAX = 8,
};

static ALWAYS_INLINE __m512i add_products(__m512i acc, __m512i x, __m512i weights) {
    return _mm512_dpbusd_epi32(acc, x, weights);
}

static void int8_dots(const struct linear_dots *dots) {
    avx512_dots(dots, false, add_products);
}

void avx512_vnni_linear_bytes(const struct linear_item *item) {
    static const struct dots_kernels kernels = {.int8 = int8_dots,
                                                .unpack_int4 = avx512_unpack_int4,
                                                .rows_max = DOTS_ROWS_MAX,
                                                .num_blocks = AVX512_DOTS_BLOCKS};
    linear_dots_run(item, &kernels);
}

// Where 32 weights of the depth, which have one scale an output, are: in the upper or the lower
// half of their bytes.
struct group_at {
    const unsigned char *w, *scales, *x;
    size_t block_bytes, ahead; // from block to block; to what is fetched
    bool is_upper;
};

// Adds their products to `total`.
static ALWAYS_INLINE void add_group(struct group_at at, uint32_t rows, uint32_t blocks,
                                    __m512i total[FEW_ROWS_MAX][FEW_BLOCKS_MAX]) {
    const __m512i low = _mm512_set1_epi8(15), seven = _mm512_set1_epi8(7);
    __m512i acc[FEW_ROWS_MAX][FEW_BLOCKS_MAX];
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) acc[r][b] = _mm512_setzero_si512();
    }
    for (uint32_t line = 0; line < INT4_TILE_BYTES; line += CHUNK_BYTES, at.x += 4) {
        __m512i value[FEW_ROWS_MAX];
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, at.x + (size_t)r * CHUNK_BYTES, sizeof four);
            value[r] = _mm512_set1_epi32(four);
        }
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            const unsigned char *from = at.w + b * at.block_bytes + line;
            if (!at.is_upper) _mm_prefetch((const void *)(from + at.ahead), _MM_HINT_T0);
            __m512i both = _mm512_loadu_si512(from);
            __m512i quads = at.is_upper ? _mm512_srli_epi16(both, 4) : both;
            __m512i weights = _mm512_sub_epi8(_mm512_and_si512(quads, low), seven);
            UNROLL for (uint32_t r = 0; r < rows; r++) {
                acc[r][b] = _mm512_dpbusd_epi32(acc[r][b], value[r], weights);
            }
        }
    }
    UNROLL for (uint32_t b = 0; b < blocks; b++) {
        const unsigned char *from = at.scales + b * at.block_bytes;
        __m512i scale = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)from));
        UNROLL for (uint32_t r = 0; r < rows; r++) {
            total[r][b] = _mm512_add_epi32(total[r][b], _mm512_mullo_epi32(acc[r][b], scale));
        }
    }
}

static ALWAYS_INLINE void few_group(const struct linear_dots *dots, uint32_t block, uint32_t rows,
                                    uint32_t blocks) {
    __m512i total[FEW_ROWS_MAX][FEW_BLOCKS_MAX];
    int32_t *sums = (int32_t *)dots->sums + (size_t)block * LANES;
    const unsigned char *w = dots->weights + block * dots->block_bytes;
    const unsigned char *scales = dots->scales + block * dots->block_bytes;
    const unsigned char *x = dots->x;
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            const void *from = sums + r * dots->sums_stride + (size_t)b * LANES;
            total[r][b] = dots->is_first ? _mm512_setzero_si512() : _mm512_loadu_si512(from);
        }
    }
    for (uint32_t c = 0; c < dots->chunks; c++, x += dots->x_stride) {
        size_t ahead = linear_dots_ahead(dots, c, blocks, INT4_TILE_BYTES);
        const struct group_at lower = {w, scales, x, dots->block_bytes, ahead, false};
        const struct group_at upper = {
            w, scales + LANES, x + INT4_GROUP, dots->block_bytes, ahead, true};
        add_group(lower, rows, blocks, total);
        add_group(upper, rows, blocks, total);
        w += INT4_TILE_BYTES;
        scales += INT4_SCALE_BYTES;
    }
    UNROLL for (uint32_t r = 0; r < rows; r++) {
        UNROLL for (uint32_t b = 0; b < blocks; b++) {
            _mm512_storeu_si512(sums + r * dots->sums_stride + (size_t)b * LANES, total[r][b]);
        }
    }
}

static ALWAYS_INLINE void few_blocks(const struct linear_dots *dots, uint32_t rows, uint32_t most) {
    uint32_t block = 0;
    for (; dots->num_blocks - block >= most; block += most) few_group(dots, block, rows, most);
    for (; block < dots->num_blocks; block++) few_group(dots, block, rows, 1);
}

static void int4_dots(const struct linear_dots *dots) {
    switch (dots->rows) {
    case 1:
        few_blocks(dots, 1, 8);
        break;
    case 2:
        few_blocks(dots, 2, 4);
        break;
    case 3:
        few_blocks(dots, 3, 2);
        break;
    case 4:
        few_blocks(dots, 4, 2);
        break;
    }
}

void avx512_vnni_linear_int4_few(const struct linear_item *item) {
    static const struct dots_kernels kernels = {
        .int4 = int4_dots, .rows_max = FEW_ROWS_MAX, .num_blocks = {0, 8, 4, 2, 2}};
    linear_dots_run(item, &kernels);
}
