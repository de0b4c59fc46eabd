/* How many rows and bytes tiles have. */
#ifndef BACKEND_CPU_AMX_TILES_H
#define BACKEND_CPU_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

// What ldtilecfg reads.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Gives the tiles so many rows of 64 bytes, and clears them all. A tile of no rows may not be used.
static inline void amx_configure(const uint32_t rows[8]) {
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)rows[i];
        config.row_bytes[i] = rows[i] ? 64 : 0;
    }
    // Compilers assume that only the first bytes of `config` are read. This keeps all of them in
    // memory.
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

#endif
