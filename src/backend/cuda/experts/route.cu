/* Routing: softmax over a token's logits, or their sigmoids, then the top_k largest scores, best
 * first, ties to the smaller id. With a bias they are ranked by score + bias. With groups only
 * experts of the best ones can be chosen. Optionally the chosen scores are divided by their sum.
 * Factors come last: one for all, one for each expert.
 *
 * Bytes: num_tokens x num_experts x 4, which is little. The time is the chain of top_k choices
 * (experts/choice.cuh). Launch: a warp per token; it starts early, and what is constant is loaded
 * before the wait. */
#include "backend/cuda/experts/choice.cuh"
#include "backend/cuda/launch.cuh"

namespace {

constexpr int WARPS = 4;

struct route_params : choice_params {
    const float *logits;
    int32_t *ids;
    float *weights;
    int num_tokens;
};

template <int PER_LANE> __global__ void __launch_bounds__(WARPS * 32) route_kernel(route_params p) {
    let_next_start();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int token = blockIdx.x * WARPS + warp;
    expert_choice<PER_LANE> all;
    all.load_bias(p, lane);
    prefetch_floats(p.scales, p.num_experts, lane);
    wait_for_earlier();
    if (token >= p.num_tokens) return;
    choose_experts(all, p, of_step(p.logits) + (size_t)token * p.num_experts,
                   of_step(p.ids) + (size_t)token * p.top_k,
                   of_step(p.weights) + (size_t)token * p.top_k, lane);
}

} // namespace

extern "C" void cuda_route_launch(const struct route_args *args,
                                  const struct cuda_device_info *info, cudaStream_t stream) {
    route_params p = {choice_params_of(args), args->logits, args->ids, args->weights,
                      static_cast<int>(args->num_tokens)};
    unsigned blocks = (args->num_tokens + WARPS - 1) / WARPS;
    auto kernel = route_kernel<CUDA_EXPERTS_MAX / 32>;
    if (args->num_experts <= 512) kernel = route_kernel<16>;
    if (args->num_experts <= 256) kernel = route_kernel<8>;
    if (args->num_experts <= 128) kernel = route_kernel<4>;
    launch_dependent(kernel, dim3(blocks), WARPS * 32, 0, info, stream, p);
}
