/* The rate of multiply-adds that a core sustains on registers alone, by the instructions that an
 * instruction set's linears of bf16 weights use: of float32, of bf16 pairs or of bf16 tiles. */
#ifndef BENCH_FMA_PEAK_H
#define BENCH_FMA_PEAK_H

void fma_peak_run(const char *isa); // some milliseconds of them on the calling thread
double fma_peak_operations(const char *isa); // multiplications and additions of one run

#endif
