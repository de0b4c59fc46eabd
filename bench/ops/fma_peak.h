/* The rate of multiply-adds that a core sustains on registers alone. It uses the instructions of
 * the ISA's linears of bf16 weights: of float32, of bf16 pairs or of bf16 tiles. */
#ifndef BENCH_FMA_PEAK_H
#define BENCH_FMA_PEAK_H

void fma_peak_run(const char *isa); // some milliseconds, on the calling thread
double fma_peak_operations(const char *isa); // multiplications and additions of one run

#endif
