/* Philox 4x32-10 on the device (Salmon, Moraes, Dror and Shaw 2011), bit for bit as in
 * backend/cpu/sample/philox.h. A random number is a function of seed and draw, without state. */
#pragma once

#include <stdint.h>

namespace {

// The random number of draw `draw`: uniform in the open interval (0, 1), 52 bits.
__device__ double philox_uniform(uint32_t seed_low, uint32_t seed_high, uint32_t draw) {
    uint32_t x0 = draw, x1 = 0, x2 = 0, x3 = 0;
    uint32_t key0 = seed_low, key1 = seed_high;
    for (int round = 0; round < 10; round++) {
        uint64_t a = static_cast<uint64_t>(0xd2511f53u) * x0;
        uint64_t b = static_cast<uint64_t>(0xcd9e8d57u) * x2;
        x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ key0;
        x1 = static_cast<uint32_t>(b);
        x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ key1;
        x3 = static_cast<uint32_t>(a);
        key0 += 0x9e3779b9u; // golden ratio
        key1 += 0xbb67ae85u; // sqrt(3) - 1
    }
    uint64_t number = (static_cast<uint64_t>(x0) << 32 | x1) >> 12;
    return (static_cast<double>(number) + 0.5) * 0x1p-52;
}

} // namespace
