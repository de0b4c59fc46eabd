/* Tiles of linears: two tiles of x, two of weights, and 2 x 2 of sums. */
#ifndef BACKEND_CPU_AMX_TILES_H
#define BACKEND_CPU_AMX_TILES_H

#include <immintrin.h>

#include "backend/cpu/linear/narrow.h"
#include "base/compiler.h"

enum {
    PANEL_ROWS = 2 * TILE_ROWS,
    TILE_FLOATS = TILE_ROWS * LANES,
};

// What ldtilecfg reads.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Tiles 0 and 1 are the sums of the first 16 rows, 2 and 3 of the others. 4 and 5 are x, 6 and 7
// weights. Configuring clears them all.
static inline void configure(uint32_t rows, uint32_t *configured) {
    if (*configured == rows) return;
    uint32_t first = rows < TILE_ROWS ? rows : TILE_ROWS, second = rows - first;
    const uint32_t of_tile[8] = {first, first, second, second, first, second, TILE_ROWS, TILE_ROWS};
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        // A tile of no rows is not configured and may not be used.
        config.rows[i] = (uint8_t)of_tile[i];
        config.row_bytes[i] = of_tile[i] ? CHUNK_BYTES : 0;
    }
    // Compilers assume that only the first bytes of `config` are read. This keeps all of them in
    // memory.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    *configured = rows;
}

// A panel of x: its one or two tiles of every chunk.
struct panel {
    uint32_t row, rows;
    const unsigned char *x[2]; // at the depth's beginning
    size_t stride[2]; // bytes from one chunk to the next
};

static ALWAYS_INLINE struct panel panel_of(const struct linear_item *item, uint32_t index) {
    struct panel panel = {.row = index * PANEL_ROWS};
    uint32_t left = item->rows - panel.row;
    panel.rows = left < PANEL_ROWS ? left : PANEL_ROWS;
    for (uint32_t tile = 0; tile * TILE_ROWS < panel.rows; tile++) {
        uint32_t row = panel.row + tile * TILE_ROWS;
        panel.x[tile] = item->x + (size_t)row * item->chunks * CHUNK_BYTES;
        panel.stride[tile] = (size_t)narrow_tile_rows(item, row) * CHUNK_BYTES;
    }
    return panel;
}

static ALWAYS_INLINE void fetch(const char *from, uint32_t begin, uint32_t end, bool near) {
    for (uint32_t byte = begin; byte < end; byte += 64) {
        if (near) {
            _mm_prefetch(from + byte, _MM_HINT_T0);
        } else {
            _mm_prefetch(from + byte, _MM_HINT_T1);
        }
    }
}

#endif
