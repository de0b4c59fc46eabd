/* wgmma products (sm_90a) with the right operand in shared memory and the left one there or in
 * registers, for every width that the kernels use. Only for code that NV_IF_TARGET guards. */
#pragma once

#include "backend/cuda/hopper.cuh"

namespace {

// Asm constraints for 8, 16, 32 and 64 accumulator registers, starting at c[i].
#define C8(i)                                                                                      \
    "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]), "+f"(c[i + 1][0]),                 \
        "+f"(c[i + 1][1]), "+f"(c[i + 1][2]), "+f"(c[i + 1][3])
#define C16(i) C8(i), C8(i + 2)
#define C32(i) C16(i), C16(i + 4)
#define C64(i) C32(i), C32(i + 8)
// Asm operand names of those registers, 16 per macro: R0 has %0 to %15, R1 %16 to %31.
#define R0                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, "                                                             \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define R1                                                                                         \
    "%16, %17, %18, %19, %20, %21, %22, %23, "                                                     \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define R2                                                                                         \
    "%32, %33, %34, %35, %36, %37, %38, %39, "                                                     \
    "%40, %41, %42, %43, %44, %45, %46, %47"
#define R3                                                                                         \
    "%48, %49, %50, %51, %52, %53, %54, %55, "                                                     \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define R4                                                                                         \
    "%64, %65, %66, %67, %68, %69, %70, %71, "                                                     \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define R5                                                                                         \
    "%80, %81, %82, %83, %84, %85, %86, %87, "                                                     \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define R6                                                                                         \
    "%96, %97, %98, %99, %100, %101, %102, %103, "                                                 \
    "%104, %105, %106, %107, %108, %109, %110, %111"
#define R7                                                                                         \
    "%112, %113, %114, %115, %116, %117, %118, %119, "                                             \
    "%120, %121, %122, %123, %124, %125, %126, %127"
// A product of width W. A, B and ADD are the asm names of the operands after the registers.
#define PRODUCT(W, REGISTERS, A, B, ADD, ...)                                                      \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" W "k16.f32.bf16.bf16 {" REGISTERS "}, " A     \
                 ", " B ", p, 1, 1, 0, 0;\n}"                                                      \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(add))

// c[64][8 S] = a[64][16] b[8 S][16]^T, plus the old c if `add`. c is laid out as in multiply().
template <int S>
__device__ __forceinline__ void multiply_shared(float (&c)[S][4], uint64_t a, uint64_t b, int add) {
    static_assert(S == 4 || S == 8 || S == 12 || S == 16 || S == 24 || S == 32, "width");
    if constexpr (S == 4) {
        PRODUCT("32", R0, "%16", "%17", "%18", C16(0));
    }
    if constexpr (S == 8) {
        PRODUCT("64", R0 ", " R1, "%32", "%33", "%34", C32(0));
    }
    if constexpr (S == 12) {
        PRODUCT("96", R0 ", " R1 ", " R2, "%48", "%49", "%50", C32(0), C16(8));
    }
    if constexpr (S == 16) {
        PRODUCT("128", R0 ", " R1 ", " R2 ", " R3, "%64", "%65", "%66", C64(0));
    }
    if constexpr (S == 24) {
        PRODUCT("192", R0 ", " R1 ", " R2 ", " R3 ", " R4 ", " R5, "%96", "%97", "%98", C64(0),
                C32(16));
    }
    if constexpr (S == 32) {
        PRODUCT("256", R0 ", " R1 ", " R2 ", " R3 ", " R4 ", " R5 ", " R6 ", " R7, "%128", "%129",
                "%130", C64(0), C64(16));
    }
}

// The same with the left operand in registers.
#define REGISTER_PRODUCT(W, REGISTERS, A, B, ADD, ...)                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" W "k16.f32.bf16.bf16 {" REGISTERS "}, {" A    \
                 "}, " B ", p, 1, 1, 0;\n}"                                                        \
                 : __VA_ARGS__                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

// c[64][8 S] = a[64][16] b[8 S][16]^T, plus the old c if `add`; a as in multiply(). Registers of
// a belong to the product until products_wait.
template <int S>
__device__ __forceinline__ void multiply_registers(float (&c)[S][4], const uint32_t (&a)[4],
                                                   uint64_t b, int add) {
    static_assert(S == 4 || S == 8 || S == 16, "width");
    if constexpr (S == 4) {
        REGISTER_PRODUCT("32", R0, "%16, %17, %18, %19", "%20", "%21", C16(0));
    }
    if constexpr (S == 8) {
        REGISTER_PRODUCT("64", R0 ", " R1, "%32, %33, %34, %35", "%36", "%37", C32(0));
    }
    if constexpr (S == 16) {
        REGISTER_PRODUCT("128", R0 ", " R1 ", " R2 ", " R3, "%64, %65, %66, %67", "%68", "%69",
                         C64(0));
    }
}

// c[64][8 S] = a[64][32] b[8 S][32]^T of e4m3, plus the old c if `add`. Operands have bytes where
// those of multiply_shared() have pairs of them.
#define CODE_PRODUCT(W, REGISTERS, A, B, ADD, ...)                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"                                  \
                 "wgmma.mma_async.sync.aligned.m64n" W "k32.f32.e4m3.e4m3 {" REGISTERS "}, " A     \
                 ", " B ", p, 1, 1;\n}"                                                            \
                 : __VA_ARGS__                                                                     \
                 : "l"(a), "l"(b), "r"(add))
template <int S>
__device__ __forceinline__ void multiply_codes(float (&c)[S][4], uint64_t a, uint64_t b, int add) {
    static_assert(S == 4 || S == 8 || S == 12 || S == 16, "width");
    if constexpr (S == 4) {
        CODE_PRODUCT("32", R0, "%16", "%17", "%18", C16(0));
    }
    if constexpr (S == 8) {
        CODE_PRODUCT("64", R0 ", " R1, "%32", "%33", "%34", C32(0));
    }
    if constexpr (S == 12) {
        CODE_PRODUCT("96", R0 ", " R1 ", " R2, "%48", "%49", "%50", C32(0), C16(8));
    }
    if constexpr (S == 16) {
        CODE_PRODUCT("128", R0 ", " R1 ", " R2 ", " R3, "%64", "%65", "%66", C64(0));
    }
}

#undef CODE_PRODUCT
#undef REGISTER_PRODUCT
#undef PRODUCT
#undef R0
#undef R1
#undef R2
#undef R3
#undef R4
#undef R5
#undef R6
#undef R7
#undef C64
#undef C32
#undef C16
#undef C8

} // namespace
