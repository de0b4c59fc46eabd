/* Fixed-point weights (fixed.h) in tiles. A weight has 16 bits: its high byte with a sign and its
 * low byte without one are two tiles of bytes, which take the places of two blocks of weights. So a
 * panel of 32 rows has 2 x 2 tiles of sums, of 16 outputs. After each record of 256 inputs the sums
 * of both bytes are put together, scaled, and added to those of the records before.
 *
 * A record's weights are unpacked once for all rows of an item. Few rows take the codes as they
 * are, in AVX-512. */
#include "backend/cpu/amx/amx_tiles.h"
#include "backend/cpu/isa/kernels_x86.h"
#include "backend/cpu/linear/fixed.h"
#include "base/check.h"

enum {
    FEW_ROWS = 8, // up to this many are faster in AVX-512
    RECORD_TILES = FIXED_RECORD / CHUNK_BYTES,
};

// A record of a block for all panels of an item.
struct record {
    const struct linear_item *item;
    const unsigned char *planes[2]; // [RECORD_TILES][1 KiB], high bytes and low ones
    struct fixed_record from;
    uint32_t block, index, num_tiles;
    uint32_t num_records; // of a block
    const char *ahead; // to prefetch meanwhile; NULL: nothing
    uint32_t ahead_bytes;
};

// Of a group: what each 16-bit half of a lane is multiplied by, and what is added, which takes off
// the codes' bias too.
struct factors {
    __m512i factor, offset;
};

static ALWAYS_INLINE __m512i twice(const int16_t from[LANES]) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from));
    return _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16));
}

static ALWAYS_INLINE struct factors factors_of(const struct fixed_record *from, uint32_t group,
                                               int32_t bias) {
    __m512i factor = twice(from->factors + (size_t)group * LANES);
    __m512i offset = _mm512_mullo_epi16(factor, _mm512_set1_epi16((short)-bias));
    if (from->offsets) {
        offset = _mm512_add_epi16(offset, twice(from->offsets + (size_t)group * LANES));
    }
    return (struct factors){factor, offset};
}

// Writes a quad's weights, of codes whose values have no sign, as a line of both tiles.
static ALWAYS_INLINE void write_quad(__m512i values, const struct factors *by, unsigned char *high,
                                     unsigned char *low) {
    const __mmask64 odds = 0xaaaaaaaaaaaaaaaau;
    __m512i even = _mm512_and_si512(values, _mm512_set1_epi16(0x00ff));
    __m512i odd = _mm512_srli_epi16(values, 8);
    even = _mm512_add_epi16(_mm512_mullo_epi16(even, by->factor), by->offset);
    odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, by->factor), by->offset);
    _mm512_store_si512(high, _mm512_mask_blend_epi8(odds, _mm512_srli_epi16(even, 8), odd));
    _mm512_store_si512(low, _mm512_mask_blend_epi8(odds, even, _mm512_slli_epi16(odd, 8)));
}

static ALWAYS_INLINE void unpack_chunk(const struct fixed_shape *shape,
                                       const struct fixed_record *from, uint32_t chunk,
                                       __m512i table, unsigned char *high, unsigned char *low) {
    const unsigned char *codes = from->chunks + (size_t)chunk * shape->chunk_bytes;
    bool is_8bit = shape->code == WEIGHT_CODE_INT8, is_int4 = shape->code == WEIGHT_CODE_INT4;
    int32_t bias = fixed_bias(shape->code);
    for (uint32_t half = 0; half < 2; half++) {
        struct factors by = factors_of(from, (chunk * 2 + half) / shape->parts_per_group, bias);
        for (uint32_t quad = 0; quad < 4; quad++) {
            __m512i values;
            if (is_8bit) {
                values = _mm512_loadu_si512(codes + (size_t)(half * 4 + quad) * FIXED_QUAD_BYTES);
            } else {
                values = _mm512_loadu_si512(codes + (size_t)quad * FIXED_QUAD_BYTES);
                if (half) values = _mm512_srli_epi16(values, 4);
                values = _mm512_and_si512(values, _mm512_set1_epi8(15));
                if (!is_int4) values = _mm512_shuffle_epi8(table, values);
            }
            write_quad(values, &by, high, low);
            high += CHUNK_BYTES;
            low += CHUNK_BYTES;
        }
    }
}

static void unpack_record(const struct record *record, unsigned char *planes) {
    const struct fixed_shape *shape = record->item->fixed;
    CACHE_ALIGNED uint8_t table[16];
    fixed_table(shape->code, table);
    __m512i values = _mm512_broadcast_i32x4(_mm_load_si128((const void *)table));
    for (uint32_t chunk = 0; chunk < record->num_tiles * 2; chunk++) {
        unsigned char *high = planes + (size_t)chunk * (TILE_BYTES / 2);
        unpack_chunk(shape, &record->from, chunk, values, high, high + RECORD_TILES * TILE_BYTES);
    }
    // Compilers do not know that tile loads read what was unpacked.
    __asm__ volatile("" ::: "memory");
}

static ALWAYS_INLINE void multiply(const struct record *record, const struct panel *panel,
                                   bool two_rows) {
    uint32_t first = record->index * RECORD_TILES;
    const unsigned char *x0 = panel->x[0] + first * panel->stride[0], *x1 = NULL;
    if (two_rows) x1 = panel->x[1] + first * panel->stride[1];
    _tile_zero(0);
    _tile_zero(1);
    if (two_rows) _tile_zero(2);
    if (two_rows) _tile_zero(3);
    for (uint32_t c = 0; c < record->num_tiles; c++) {
        _tile_loadd(6, record->planes[0] + (size_t)c * TILE_BYTES, CHUNK_BYTES);
        _tile_stream_loadd(4, x0 + c * panel->stride[0], CHUNK_BYTES);
        _tile_loadd(7, record->planes[1] + (size_t)c * TILE_BYTES, CHUNK_BYTES);
        if (two_rows) _tile_stream_loadd(5, x1 + c * panel->stride[1], CHUNK_BYTES);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        if (two_rows) _tile_dpbssd(2, 5, 6);
        if (two_rows) _tile_dpbsud(3, 5, 7);
    }
}

// Puts the sums of both bytes together, of a tile's rows, and adds them to `sums`. The first
// record's are added to the biases, the last one's go to `out`.
static ALWAYS_INLINE void add_rows(const struct record *record, uint32_t row, uint32_t rows,
                                   const int32_t *tiles, float *sums) {
    const struct linear_item *item = record->item;
    size_t lane = (size_t)record->block * LANES;
    __m512 units = _mm512_loadu_ps(record->from.units);
    __m512 start = _mm512_loadu_ps(item->start + lane);
    const float *scales = fixed_x_scale(&item->x_fixed, record->index, item->x_row + row);
    float *out = item->out + row * item->out_stride + lane;
    bool is_first = record->index == 0, is_last = record->index + 1 == record->num_records;
    uint32_t cols = item->cols - record->block * LANES;
    __mmask16 mask = (__mmask16)(cols < LANES ? (1u << cols) - 1 : 0xffffu);
    for (uint32_t r = 0; r < rows; r++, tiles += LANES, sums += LANES) {
        __m512i high = _mm512_loadu_si512(tiles), low = _mm512_loadu_si512(tiles + TILE_FLOATS);
        __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
        __m512 scale = _mm512_mul_ps(units, _mm512_set1_ps(scales[r]));
        __m512 before = is_first ? start : _mm512_loadu_ps(sums);
        __m512 after = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, before);
        if (is_last) {
            _mm512_mask_storeu_ps(out + r * item->out_stride, mask, after);
        } else {
            _mm512_storeu_ps(sums, after);
        }
    }
}

static ALWAYS_INLINE void run_panel(const struct record *record, const struct panel *panel,
                                    float *sums, bool two_rows) {
    CACHE_ALIGNED int32_t tiles[4 * TILE_FLOATS];
    multiply(record, panel, two_rows);
    _tile_stored(0, tiles, CHUNK_BYTES);
    _tile_stored(1, tiles + TILE_FLOATS, CHUNK_BYTES);
    if (two_rows) _tile_stored(2, tiles + 2 * TILE_FLOATS, CHUNK_BYTES);
    if (two_rows) _tile_stored(3, tiles + 3 * TILE_FLOATS, CHUNK_BYTES);
    __asm__ volatile("" ::: "memory");
    uint32_t first = two_rows ? (uint32_t)TILE_ROWS : panel->rows;
    add_rows(record, panel->row, first, tiles, sums);
    if (!two_rows) return;
    add_rows(record, panel->row + TILE_ROWS, panel->rows - TILE_ROWS, tiles + 2 * TILE_FLOATS,
             sums + TILE_FLOATS);
}

static void run_record(const struct record *record, float *sums, uint32_t *configured) {
    const struct linear_item *item = record->item;
    uint32_t num_panels = (item->rows + PANEL_ROWS - 1) / PANEL_ROWS;
    CHECK(num_panels > 0, "rows=%u", item->rows);
    uint32_t share = (record->ahead_bytes / 64 + num_panels - 1) / num_panels * 64;
    for (uint32_t i = 0; i < num_panels; i++, sums += 2 * TILE_FLOATS) {
        struct panel panel = panel_of(item, i);
        uint32_t begin = i * share, end = begin + share;
        if (end > record->ahead_bytes) end = record->ahead_bytes;
        if (record->ahead) fetch(record->ahead, begin, end, num_panels == 1);
        configure(panel.rows, configured);
        if (panel.rows > TILE_ROWS) {
            run_panel(record, &panel, sums, true);
        } else {
            run_panel(record, &panel, sums, false);
        }
    }
}

static void run_tiles(const struct linear_item *item) {
    CACHE_ALIGNED unsigned char planes[2 * RECORD_TILES * TILE_BYTES];
    CACHE_ALIGNED float sums[ITEM_ROWS_MAX / PANEL_ROWS * 2 * TILE_FLOATS];
    uint32_t configured = 0;
    struct record record = {.item = item,
                            .planes = {planes, planes + RECORD_TILES * TILE_BYTES},
                            .num_records = fixed_num_records(item->chunks * CHUNK_BYTES),
                            .ahead_bytes = (uint32_t)fixed_record_bytes(item->fixed)};
    for (; record.block < item->num_blocks; record.block++) {
        const unsigned char *block = item->weights + record.block * item->block_bytes;
        bool is_last = record.block + 1 == item->num_blocks;
        for (record.index = 0; record.index < record.num_records; record.index++) {
            uint32_t left = item->chunks - record.index * RECORD_TILES;
            record.num_tiles = left < RECORD_TILES ? left : (uint32_t)RECORD_TILES;
            record.from = fixed_record_of(item->fixed, block, record.index);
            const unsigned char *next = is_last ? item->next : block + item->block_bytes;
            if (record.index + 1 < record.num_records) {
                next = block + (record.index + 1) * fixed_record_bytes(item->fixed);
            }
            record.ahead = (const char *)next;
            unpack_record(&record, planes);
            run_record(&record, sums, &configured);
        }
    }
    _tile_release();
}

void amx_linear_fixed(const struct linear_item *item) {
    if (item->rows <= FEW_ROWS) {
        avx512_vnni_linear_fixed(item);
    } else {
        run_tiles(item);
    }
}
