/* The compiler's attributes under our names. The only place that spells them out. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#if defined(__GNUC__)
#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_arg)                                                       \
    __attribute__((format(printf, format_index, first_arg)))
#define NORETURN __attribute__((noreturn))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CACHE_ALIGNED __attribute__((aligned(64)))
#else
#error "nanovllm needs GCC or Clang"
#endif

// ALWAYS_INLINE makes a copy of a function for each set of constant arguments. UNROLL before a loop
// unrolls it whole, so that its arrays stay in registers. The loop runs a constant number of times,
// at most 16. Neither with these sanitizers or KERNEL_ROLLED: with a check of every access, or with
// emulated vectors, the copies take minutes to compile. KERNEL_UNROLLED in a file brings both back.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COMPILER_CHECKS 1
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COMPILER_CHECKS 1
#endif
#if defined(KERNEL_ROLLED) || (defined(COMPILER_CHECKS) && !defined(KERNEL_UNROLLED))
#define ALWAYS_INLINE inline
#define UNROLL
#else
#define ALWAYS_INLINE inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#endif

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
