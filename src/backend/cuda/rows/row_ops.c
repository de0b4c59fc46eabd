/* Ops of backend.h on rows, and the short convolution: each launches its kernels on the backend's
 * stream. */
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/kernels.h"

void cuda_rms_norm(struct backend *backend, const struct rms_norm_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_rms_norm_launch(args, &cuda->info, cuda->stream);
}

void cuda_silu_mul(struct backend *backend, const struct silu_mul_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_silu_mul_launch(args, &cuda->info, cuda->stream);
}

void cuda_gelu_mul(struct backend *backend, const struct gelu_mul_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_gelu_mul_launch(args, &cuda->info, cuda->stream);
}

void cuda_sigmoid_mul(struct backend *backend, const struct sigmoid_mul_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_sigmoid_mul_launch(args, &cuda->info, cuda->stream);
}

void cuda_scale(struct backend *backend, const struct scale_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_scale_launch(args, &cuda->info, cuda->stream);
}

void cuda_softcap(struct backend *backend, const struct softcap_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_softcap_launch(args, &cuda->info, cuda->stream);
}

void cuda_square_sums(struct backend *backend, const struct cut_norm_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_square_sums_launch(args, &cuda->info, cuda->stream);
}

void cuda_cut_norm(struct backend *backend, const struct cut_norm_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_cut_norm_launch(args, &cuda->info, cuda->stream);
}

void cuda_layer_norm(struct backend *backend, const struct layer_norm_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_layer_norm_launch(args, &cuda->info, cuda->stream);
}

void cuda_activate(struct backend *backend, const struct activate_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_activate_launch(args, &cuda->info, cuda->stream);
}

void cuda_short_conv(struct backend *backend, const struct short_conv_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_short_conv_launch(args, &cuda->info, cuda->stream);
}

void cuda_scale_rows(struct backend *backend, const struct scale_rows_args *args) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_scale_rows_launch(args, &cuda->info, cuda->stream);
}
