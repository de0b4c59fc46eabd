/* Products of 8-bit floats by cuBLASLt: rows of x that linear/round_rows.cu has rounded, by e4m3
 * weights as plain rows (linear/e4m3.h). cuBLASLt applies the scales: one for 128 x 128 weights and
 * one for 128 inputs of a row of x, or one for each output and one for each row. It chooses the
 * algorithm: of those that its heuristic proposes, the first was always the fastest on an H200. */
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/gemm/gemm_product.h"
#include "backend/cuda/linear/e4m3.h"

// cuBLASLt reads the row-major matrices as transposed ones: A is the weights, B is x.
static cublasStatus_t set_scales(const struct cuda_gemm *g, const struct gemm_product *p,
                                 const struct cuda_linear_view *v, const float *x_scales) {
    int32_t of_weights = v->group ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                  : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    int32_t of_x = v->group ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                            : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const void *scales = v->group ? v->block_scales : v->scales;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
    } all[] = {{CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &of_weights, sizeof of_weights},
               {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &of_x, sizeof of_x},
               {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &scales, sizeof scales},
               {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x_scales, sizeof x_scales}};
    cublasStatus_t r = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; i < sizeof all / sizeof *all && !r; i++) {
        r = g->library.desc_set(p->desc, all[i].attribute, all[i].value, all[i].bytes);
    }
    return r;
}

bool cuda_gemm_run_e4m3(struct cuda_gemm *g, const struct cuda_linear_task *task,
                        const struct cuda_rounded_rows *x, void *out, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    struct gemm_product p;
    cublasStatus_t r = gemm_product_init(g, &p, task, CUDA_R_8F_E4M3, CUDA_R_16BF);
    if (!r) r = set_scales(g, &p, &task->linear, x->scales);
    if (!r) {
        r = g->library.matmul(g->handle, p.desc, &one, task->linear.plain, p.weight, x->codes, p.x,
                              task->is_added ? &one : &zero, out, p.out, out, p.out, NULL,
                              g->workspace, GEMM_WORKSPACE_BYTES, stream);
    }
    gemm_product_fini(g, &p);
    return !r;
}
