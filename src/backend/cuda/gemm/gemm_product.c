#include "backend/cuda/gemm/gemm_product.h"

static cublasStatus_t set_bias(const struct cuda_gemm *g, const struct gemm_product *p,
                               const void *bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = CUDA_R_16BF;
    const struct gemm_library *l = &g->library;
    cublasStatus_t r =
        l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!r) r = l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (!r) r = l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    return r;
}

cublasStatus_t gemm_product_init(const struct cuda_gemm *g, struct gemm_product *p,
                                 const struct cuda_linear_task *task, cudaDataType_t in_type,
                                 cudaDataType_t out_type) {
    const struct gemm_library *l = &g->library;
    const struct cuda_linear_view *v = &task->linear;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    *p = (struct gemm_product){0};
    cublasStatus_t r = l->desc_create(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!r) {
        r = l->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    }
    if (!r && v->bias) r = set_bias(g, p, v->bias);
    if (!r) r = l->layout_create(&p->weight, in_type, v->in, v->out, v->in);
    if (!r) r = l->layout_create(&p->x, in_type, v->in, task->rows, v->in);
    if (!r) r = l->layout_create(&p->out, out_type, v->out, task->rows, v->out);
    return r;
}

void gemm_product_fini(const struct cuda_gemm *g, struct gemm_product *p) {
    if (p->out) g->library.layout_destroy(p->out);
    if (p->x) g->library.layout_destroy(p->x);
    if (p->weight) g->library.layout_destroy(p->weight);
    if (p->desc) g->library.desc_destroy(p->desc);
}
