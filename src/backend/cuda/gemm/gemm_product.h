/* cuBLASLt's descriptors of one product. The result is row-major [rows][out]. cuBLAS reads that as
 * the transpose: [out x rows] = W [in x out] transposed times x [in x rows]. */
#ifndef BACKEND_CUDA_LINEAR_GEMM_PRODUCT_H
#define BACKEND_CUDA_LINEAR_GEMM_PRODUCT_H

#include "backend/cuda/gemm/gemm_trial.h"

struct gemm_product {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight, x, out;
};

// `in_type`: of weights and x. Sums and scales are float32; the linear's bias is added if it has
// one. Call gemm_product_fini even after an error.
cublasStatus_t gemm_product_init(const struct cuda_gemm *g, struct gemm_product *p,
                                 const struct cuda_linear_task *task, cudaDataType_t in_type,
                                 cudaDataType_t out_type);
void gemm_product_fini(const struct cuda_gemm *g, struct gemm_product *p);

#endif
