/* Sampling: rows of float32 logits to tokens and log-probabilities, as backend.h says. Semantics
 * and random numbers are those of backend/cpu/sample/sample.c.
 *
 * A draw inverts the cumulative distribution, ids ascending, at the CPU's Philox number. Gumbel's
 * trick (the largest of logit + noise) would need a random number per logit. This way costs one
 * more pass and tile, and a seed gives the same token on every device unless rounding decides.
 *
 * Launch: the scan runs one warp per tile of 512 logits and reads all logits once. It stores each
 * tile's maximum and sum of weights. Then a block per row joins the tiles. Greedy rows and plain
 * draws read one tile again. top_k reads the tiles whose maximum is large enough. top_p and min_p
 * alone may read the row a few times, by a cluster of blocks if rows are few. Rows with penalties
 * read their token counts with the logits and count their new token. Only rows with biases build
 * patches. Only rows that report top tokens search for them.
 *
 * Rows that are cut among the GPUs of several ranks: each rank scans its slice, and stores what it
 * finds to the memory of all. Then all ranks finish all rows, and read the tiles that decide where
 * they lie. They do the same with the same numbers, so all have the same tokens.
 *
 * Bytes: 4 x num_rows x vocab_size, twice that with penalties. Of a row with a mask only tiles that
 * have an allowed token, unless its log-probabilities are those without the mask. */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/sample/params.cuh"
#include "backend/cuda/sample/philox.cuh"
#include "backend/cuda/sample/select.cuh"

namespace {

constexpr int SCAN_WARPS = 16, TEAM_MAX = 8;
constexpr int TOP_P_TILES = 32; // top_p first searches the tokens of so many best tiles
constexpr float LIMIT_MARGIN = 0.01f; // in log2(weight); more than the rounding error

// The logits that log-probabilities are of. Weights: temperature 1, none dropped.
__device__ row_view raw_view(const sample_params &p, int row, const sample_row &how) {
    row_view v = {};
    v.logits = of_step(p.logits) + (size_t)row * p.vocab_size;
    if (p.slices.count) v.slices = &p.slices;
    v.row = row;
    v.slice_tiles = p.slice_tiles;
    v.tile_max = &parts_of(p, row)->raw_max;
    v.vocab_size = p.vocab_size;
    v.num_tiles = p.num_tiles;
    v.id_bits = p.id_bits;
    v.vectors = p.vectors;
    if (how.mask && how.masks_logprobs) v.mask = p.masks + (size_t)(how.mask - 1) * p.mask_words;
    v.max = -INFINITY;
    v.scale = LOG2E;
    v.weight_min = WEIGHT_MIN;
    return v;
}

__device__ row_view adjusted_view(const sample_params &p, int row, const sample_row &how) {
    row_view v = raw_view(p, row, how);
    v.tile_max = &parts_of(p, row)->max;
    if (how.counts_slot) v.counts = p.counts + (size_t)(how.counts_slot - 1) * p.vocab_size;
    if (how.mask) v.mask = p.masks + (size_t)(how.mask - 1) * p.mask_words;
    v.repetition = how.repetition_penalty;
    v.presence = how.presence_penalty;
    v.frequency = how.frequency_penalty;
    if (how.bias_count) {
        v.patch_bits = patch_bits_of(p, row);
        v.patches = patches_of(p, row);
    }
    v.scale = 0;
    if (how.temperature > 0) v.scale = fminf(fmaxf(LOG2E / how.temperature, FLT_MIN), FLT_MAX);
    v.weight_min = fminf(fmaxf(how.min_p, WEIGHT_MIN), 1.0f);
    return v;
}

// Whether several blocks may work on the row: that pays where the whole row is read again.
__device__ bool is_shared(const sample_row &how) {
    if (!(how.temperature > 0)) return false;
    return how.top_k > 0 ? how.top_k > TOP_P_TILES : how.top_p < 1 || how.min_p > WEIGHT_MIN;
}

// Computes the biased logits (patches) of this block's tiles, the first of num_tiles is first_tile.
// bits: shared [SCAN_WARPS][TILE_WORDS].
template <bool IS_CUT>
__device__ void make_patches(const sample_params &p, const row_view &v, int row,
                             const sample_row &how, int first_tile, int num_tiles, uint32_t *bits) {
    constexpr int NUM_WORDS = SCAN_WARPS * TILE_WORDS, NUM_IDS = SCAN_WARPS * TILE;
    float *patches = patches_of(p, row);
    const tile_place place = place_of(v, first_tile);
    int first_id = place.first;
    for (int i = threadIdx.x; i < NUM_WORDS; i += blockDim.x) bits[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < how.bias_count; i += blockDim.x) {
        sample_bias bias = p.biases[how.bias_start + i];
        int id = bias.token_id, at = id - first_id;
        if (id < first_id || at >= NUM_IDS || id >= place.end) continue;
        uint32_t count = v.counts ? __ldcg(v.counts + id) + bias.count : 0;
        float logit = penalize(v, count, place.logits[id]);
        share<IS_CUT>(p, patches + id, clean(__fadd_rn(logit, bias.bias)));
        atomicOr(&bits[at / 32], 1u << (at % 32));
    }
    __syncthreads();
    int num_words = num_tiles * TILE_WORDS;
    uint32_t *out = patch_bits_of(p, row) + (size_t)first_tile * TILE_WORDS;
    for (int i = threadIdx.x; i < num_words; i += blockDim.x) share<IS_CUT>(p, out + i, bits[i]);
}

__device__ __forceinline__ float largest(const float (&x)[LANE_VALUES]) {
    float max = x[0];
#pragma unroll
    for (int i = 1; i < LANE_VALUES; i++) max = fmaxf(max, x[i]);
    return warp_max(max);
}

// The sum of exp2((x - max) * scale). 0 if all of the tile is -inf.
__device__ __forceinline__ float sum_weights(const float (&x)[LANE_VALUES], float max,
                                             float scale) {
    if (!(max > -INFINITY)) return 0;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i++) sum += exp2_fast((x[i] - max) * scale);
    return warp_sum(sum);
}

// IS_CUT: rows are cut among ranks. Otherwise the code for that would cost registers.
template <bool IS_CUT>
__global__ void __launch_bounds__(SCAN_WARPS * 32, IS_CUT ? 2 : 3)
    scan_kernel(const __grid_constant__ sample_params p) {
    __shared__ uint32_t bits[SCAN_WARPS * TILE_WORDS];
    let_next_start();
    wait_for_earlier();
    int row = blockIdx.x / p.scan_blocks, part = blockIdx.x % p.scan_blocks;
    int warp = threadIdx.x / 32, begun = part % p.slice_blocks * SCAN_WARPS;
    int slice = static_cast<int>(p.slices.scan_first) + part / p.slice_blocks;
    int first_tile = slice * p.slice_tiles + begun;
    int num_tiles = min(p.slice_tiles - begun, SCAN_WARPS), tile = first_tile + warp;
    const sample_row how = of_step(p.rows)[row];
    if (p.team_size > 1 && part == 0 && is_shared(how)) {
        team_bins &first = p.bins[row * 3];
        for (int b = threadIdx.x; b < NUM_BINS; b += blockDim.x) first.count[b] = first.mass[b] = 0;
    }
    row_view v = adjusted_view(p, row, how);
    if constexpr (!IS_CUT) v.slices = nullptr;
    if (how.bias_count) make_patches<IS_CUT>(p, v, row, how, first_tile, num_tiles, bits);
    if (warp >= num_tiles) return;
    const tile_place place = place_of(v, tile);
    float x[LANE_VALUES];
    tile_part out;
    out.raw_max = out.raw_sum = 0;
    // Most masks of a form's punctuation and keys allow a few tokens. The other tiles are not read.
    bool is_masked = how.mask && (how.num_top < 0 || how.masks_logprobs);
    if (is_masked && !allows_any(v, place.first)) {
        out.max = out.raw_max = -INFINITY;
        out.sum = 0;
        if (threadIdx.x % 32 == 0) share<IS_CUT>(p, parts_of(p, row) + tile, out);
        return;
    }
    if (how.num_top >= 0) {
        load_raw(v, place, x);
        if (how.mask && how.masks_logprobs) apply_mask(v, place.first, x);
        out.raw_max = largest(x);
        out.raw_sum = sum_weights(x, out.raw_max, LOG2E);
    }
    load_values(v, place, x);
    adjust_values(v, how.bias_count ? bits + warp * TILE_WORDS : nullptr, place.first, x);
    out.max = largest(x);
    out.sum = v.scale > 0 ? sum_weights(x, out.max, v.scale) : 0;
    if (threadIdx.x % 32 == 0) share<IS_CUT>(p, parts_of(p, row) + tile, out);
}

// Stores each tile's weight of tokens with keys up to `end`. Returns their sum.
__device__ mass64 weigh_kept(const row_view &v, const row_team &team, block_space &s,
                             uint64_t end) {
    float least = key_logit(v, end);
    int lane = threadIdx.x % 32, step = team.size * WARPS;
    for (int t = team.rank * WARPS + threadIdx.x / 32; t < v.num_tiles; t += step) {
        mass64 sum = 0;
        if (tile_max(v, t) >= least) {
            float x[LANE_VALUES];
            const tile_place place = load_tile(v, t, x);
#pragma unroll
            for (int i = 0; i < LANE_VALUES; i++) {
                if (x[i] >= least && key_of(v, x[i], value_id(place.first, i)) <= end)
                    sum += mass_of(v, x[i]);
            }
            sum = warp_sum(sum);
        }
        if (lane == 0) team.masses[t] = sum;
    }
    team_barrier(team);
    mass64 sum = 0, total;
    for (int t = threadIdx.x; t < v.num_tiles; t += THREADS) sum += __ldcg(&team.masses[t]);
    block_scan(s, sum, &total);
    return total;
}

// The same for all tokens, from the scan's results.
__device__ mass64 weigh_tiles(const row_view &v, const row_team &team, block_space &s,
                              const tile_part *parts) {
    mass64 sum = 0, total;
    for (int t = threadIdx.x; t < v.num_tiles; t += THREADS) {
        float weight = parts[t].sum * exp2_fast((parts[t].max - v.max) * v.scale);
        mass64 mass = __float2ull_rz(weight * MASS_ONE);
        if (team.rank == 0) team.masses[t] = mass;
        sum += mass;
    }
    block_scan(s, sum, &total);
    return total;
}

// The tile where the running sum of all masses passes *target. *target becomes the rest within that
// tile. Called by one warp. *target must be less than the sum of all masses.
__device__ int pick_tile(const row_view &v, const row_team &team, mass64 *target) {
    int lane = threadIdx.x % 32, per_lane = (v.num_tiles + 31) / 32;
    int first = min(lane * per_lane, v.num_tiles), stop = min(first + per_lane, v.num_tiles);
    mass64 sum = 0;
    for (int t = first; t < stop; t++) sum += __ldcg(&team.masses[t]);
    mass64 end = warp_scan(sum);
    int source = __ffs(__ballot_sync(FULL_WARP, end > *target)) - 1;
    *target -= __shfl_sync(FULL_WARP, end - sum, source);
    // One lane per tile of that range: a single lane would wait microseconds for its loads.
    first = __shfl_sync(FULL_WARP, first, source), stop = __shfl_sync(FULL_WARP, stop, source);
    for (; first < stop; first += 32) {
        mass64 mass = first + lane < stop ? __ldcg(&team.masses[first + lane]) : 0;
        end = warp_scan(mass);
        unsigned passed = __ballot_sync(FULL_WARP, end > *target);
        if (passed) {
            int at = __ffs(passed) - 1;
            *target -= __shfl_sync(FULL_WARP, end - mass, at);
            return first + at;
        }
        *target -= __shfl_sync(FULL_WARP, end, 31);
    }
    return stop - 1; // not reached while *target is less than the sum
}

// The token of the tile where the running sum passes `target`. The tile's mass may have been
// rounded up; if the end is passed, the last token with any mass.
__device__ int pick_token(const row_view &v, int tile, mass64 target, uint64_t end) {
    float x[LANE_VALUES];
    const tile_place place = load_tile(v, tile, x);
    int last = -1;
#pragma unroll
    for (int i = 0; i < LANE_VALUES; i += 4) {
        mass64 mass[4], sum = 0;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            int id = value_id(place.first, i + c);
            mass[c] = key_of(v, x[i + c], id) <= end ? mass_of(v, x[i + c]) : 0;
            if (mass[c]) last = id;
            sum += mass[c];
        }
        mass64 stop = warp_scan(sum), running = stop - sum;
        unsigned passed = __ballot_sync(FULL_WARP, stop > target);
        if (passed) {
            int token = -1;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                running += mass[c];
                if (token < 0 && running > target) token = value_id(place.first, i + c);
            }
            return __shfl_sync(FULL_WARP, token, __ffs(passed) - 1);
        }
        target -= __shfl_sync(FULL_WARP, stop, 31);
    }
    last = __reduce_max_sync(FULL_WARP, last);
    return last >= 0 ? last : first_at_least(v, tile, tile_max(v, tile));
}

// Called by warp 0, which alone gets the result.
__device__ int draw(const row_view &v, const row_team &team, const sample_row &how, mass64 total,
                    uint64_t end) {
    double uniform = philox_uniform(how.seed_low, how.seed_high, how.draw);
    mass64 target = static_cast<mass64>(uniform * static_cast<double>(total));
    if (target >= total) target = total - 1;
    int tile = pick_tile(v, team, &target);
    return pick_token(v, tile, target, end);
}

// A lower bound for the logits of tokens with at least this weight.
__device__ float logit_of_weight(const row_view &v, float weight) {
    return v.max + (log2f(weight) - LIMIT_MARGIN) / v.scale - fabsf(v.max) * 3e-7f;
}

// The end key of top_k, or `last` (min_p's) if smaller. Tokens in between are dropped by weight.
__device__ uint64_t end_of_top_k(const row_view &v, row_team &team, block_space &s, int top_k,
                                 uint64_t last) {
    float bound = tile_max_of_rank(v, s, top_k);
    uint64_t near = last_key(v, bound);
    last = near < last ? near : last;
    uint64_t end = select_best(v, team, s, last, top_k, false);
    return end < last ? end : last;
}

__device__ uint64_t end_of_top_p(const row_view &v, row_team &team, block_space &s, float top_p,
                                 mass64 total, uint64_t last) {
    mass64 target = static_cast<mass64>(ceil(fmax(top_p, 0.0f) * static_cast<double>(total)));
    if (target < 1) target = 1;
    uint64_t best = last_key(v, tile_max_of_rank(v, s, TOP_P_TILES));
    if (best < last) { // usually enough: most models are sure of most tokens
        uint64_t end = select_best(v, team, s, best, target, true);
        if (end != NO_KEY) return end;
    }
    // All tokens below this weight together hold at most half of the mass that may be dropped.
    double rest = 0.5 * (1.0 - static_cast<double>(top_p)) * static_cast<double>(total) /
                  (static_cast<double>(MASS_ONE) * v.vocab_size);
    uint64_t far = last_key(v, logit_of_weight(v, fmaxf(static_cast<float>(rest), WEIGHT_MIN)));
    last = far < last ? far : last;
    uint64_t end = select_best(v, team, s, last, target, true);
    return end < last ? end : last;
}

__device__ int draw_filtered(const row_view &v, row_team &team, block_space &s,
                             const sample_row &how, const tile_part *parts) {
    uint64_t end = last_key(v, logit_of_weight(v, v.weight_min));
    mass64 total;
    if (how.top_k > 0) end = end_of_top_k(v, team, s, how.top_k, end);
    if (how.top_k > 0 || how.min_p > WEIGHT_MIN) {
        total = weigh_kept(v, team, s, end);
    } else {
        total = weigh_tiles(v, team, s, parts);
    }
    if (how.top_p < 1) {
        end = end_of_top_p(v, team, s, how.top_p, total, end);
        total = weigh_kept(v, team, s, end);
    }
    if (team.rank != 0 || threadIdx.x >= 32) return -1;
    return draw(v, team, how, total, end);
}

// Chooses the token of a row that has a finite logit. The result is valid in warp 0 of rank 0.
__device__ int choose(const row_view &v, row_team &team, block_space &s, const sample_row &how,
                      const tile_part *parts) {
    if (!(how.temperature > 0)) {
        int first = INT_MAX;
        for (int t = threadIdx.x; t < v.num_tiles; t += THREADS) {
            if (tile_max(v, t) >= v.max) first = min(first, t);
        }
        first = __reduce_min_sync(FULL_WARP, first);
        if (threadIdx.x == 0) s.bin = INT_MAX;
        __syncthreads();
        if (threadIdx.x % 32 == 0) atomicMin(&s.bin, first);
        __syncthreads();
        return threadIdx.x < 32 ? first_at_least(v, s.bin, v.max) : -1;
    }
    if (how.top_k > 0 || how.top_p < 1 || how.min_p > WEIGHT_MIN) {
        return draw_filtered(v, team, s, how, parts);
    }
    mass64 total = weigh_tiles(v, team, s, parts);
    return threadIdx.x < 32 ? draw(v, team, how, total, NO_KEY) : -1;
}

// The largest logit of the row, raw or adjusted.
__device__ float row_max(const row_view &v, block_space &s) {
    float max = -INFINITY;
    for (int t = threadIdx.x; t < v.num_tiles; t += THREADS) max = fmaxf(max, tile_max(v, t));
    return block_max(s, max);
}

// log(sum of exp(logit - max)) of the raw logits.
__device__ double raw_log_sum(const row_view &raw, block_space &s, const tile_part *parts) {
    double sum = 0;
    for (int t = threadIdx.x; t < raw.num_tiles; t += THREADS) {
        if (parts[t].raw_sum > 0) {
            sum += static_cast<double>(parts[t].raw_sum) *
                   static_cast<double>(exp2_fast((parts[t].raw_max - raw.max) * raw.scale));
        }
    }
    return log(block_sum(s, sum));
}

__device__ float logprob_of(const row_view &raw, float logit, double log_sum) {
    if (!(logit > -INFINITY)) return -INFINITY;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(raw.max) - log_sum);
}

// Lists the best raw logits, by one block: finds the end key, collects tokens up to it, sorts. Of a
// masked view only those above -inf.
__device__ void list_top(const row_view &raw, row_team &alone, block_space &s, int num_top,
                         double log_sum, sample_result *result) {
    int n = min(num_top, raw.vocab_size), warp = threadIdx.x / 32;
    uint64_t last = last_key(raw, tile_max_of_rank(raw, s, n));
    uint64_t end = select_best(raw, alone, s, last, n, false);
    float least = key_logit(raw, end);
    if (threadIdx.x == 0) s.num_listed = 0;
    __syncthreads();
    for (int t = warp; t < raw.num_tiles; t += WARPS) {
        if (!(tile_max(raw, t) >= least)) continue;
        float x[LANE_VALUES];
        const tile_place place = load_tile(raw, t, x);
#pragma unroll
        for (int i = 0; i < LANE_VALUES; i++) {
            int id = value_id(place.first, i);
            uint64_t key = key_of(raw, x[i], id);
            if (id >= place.end || key > end) continue;
            uint32_t at = atomicAdd(&s.num_listed, 1u);
            if (at < SAMPLE_TOP_MAX) s.listed[at] = key;
        }
    }
    __syncthreads();
    int i = threadIdx.x;
    if (i < n) {
        int rank = 0;
        for (int j = 0; j < n; j++) rank += s.listed[j] < s.listed[i];
        float logit = key_logit(raw, s.listed[i]);
        bool there = !raw.mask || logit > -INFINITY;
        result->top_id[rank] = there ? key_id(raw, s.listed[i]) : -1;
        result->top_logprob[rank] = logprob_of(raw, logit, log_sum);
    } else if (i < num_top) {
        result->top_id[i] = -1;
        result->top_logprob[i] = -INFINITY;
    }
}

__device__ void list_given(const sample_params &p, const row_view &raw, const sample_row &how,
                           double log_sum, sample_result *result) {
    int i = threadIdx.x;
    if (i >= min(static_cast<int>(how.num_given), static_cast<int>(SAMPLE_TOP_MAX))) return;
    int id = of_step(p.biases)[how.bias_start + how.bias_count + i].token_id;
    result->top_id[i] = id;
    bool is_banned = raw.mask && !(raw.mask[id / 32] >> (id % 32) & 1);
    float logit = is_banned ? -INFINITY : clean(raw_logit(raw, id));
    result->top_logprob[i] = logprob_of(raw, logit, log_sum);
}

__global__ void __launch_bounds__(THREADS, 2)
    finish_kernel(const __grid_constant__ sample_params p) {
    __shared__ block_space s;
    __shared__ row_view v, raw;
    __shared__ row_team team, alone;
    wait_for_earlier();
    int row = blockIdx.x / p.team_size;
    const sample_row &how = of_step(p.rows)[row];
    sample_result *result = &of_step(p.results)[row];
    const tile_part *parts = parts_of(p, row);
    int rank = blockIdx.x % p.team_size, size = is_shared(how) ? p.team_size : 1;
    if (rank >= size) return;

    if (threadIdx.x == 0) {
        v = adjusted_view(p, row, how);
        raw = raw_view(p, row, how);
        mass64 *masses = p.masses + (size_t)row * p.num_tiles;
        team = {rank, size, 0, p.bins + (size_t)row * 3, masses};
        alone = {0, 1, 0, nullptr, masses};
    }
    __syncthreads();
    double log_sum = 0;
    bool logprobs = how.num_top >= 0;
    float max = row_max(v, s), raw_max = logprobs ? row_max(raw, s) : 0;
    if (threadIdx.x == 0) {
        v.max = max;
        raw.max = raw_max;
    }
    __syncthreads();
    if (logprobs && rank == 0) {
        log_sum = raw_log_sum(raw, s, parts);
        int num_top = min(static_cast<int>(how.num_top), static_cast<int>(SAMPLE_TOP_MAX));
        if (how.num_given) {
            list_given(p, raw, how, log_sum, result);
        } else if (num_top > 0) {
            list_top(raw, alone, s, num_top, log_sum, result);
        }
    }
    int token = max > -INFINITY ? choose(v, team, s, how, parts) : -1;
    if (rank != 0 || threadIdx.x != 0) return;
    result->token_id = token;
    if (how.counts_slot && !how.is_tentative && token >= 0) {
        atomicAdd(&p.counts[(size_t)(how.counts_slot - 1) * p.vocab_size + token], 1u);
    }
    float logprob = logprobs ? -INFINITY : 0.0f;
    if (logprobs && token >= 0) logprob = logprob_of(raw, clean(raw_logit(raw, token)), log_sum);
    result->logprob = logprob;
}

// Blocks per row of the second kernel: as many as can run at the same time. Clusters need sm_90.
int team_size_of(const cuda_device_info *info, uint32_t num_rows) {
    if (info->major < 9 || num_rows > TEAM_ROWS_MAX) return 1;
    int size = TEAM_MAX;
    while (size > 1 && static_cast<int>(num_rows) * size > 2 * info->num_sms) size /= 2;
    return size;
}

sample_params params_of(const sample_args *args, const cuda_logit_slices *slices,
                        const cuda_device_info *info) {
    sample_params p = {};
    p.logits = args->logits;
    p.rows = args->rows;
    p.biases = args->biases;
    p.masks = args->masks;
    p.counts = args->counts ? args->counts->counts : nullptr;
    p.mask_words = static_cast<int>((args->vocab_size + 31) / 32);
    p.results = args->results;
    p.vocab_size = static_cast<int>(args->vocab_size);
    p.slice_tiles = p.num_tiles = (p.vocab_size + TILE - 1) / TILE;
    int num_slices = 1, last_id = p.num_tiles * TILE;
    if (slices) {
        p.slices = *slices;
        num_slices = static_cast<int>(slices->count);
        p.slice_tiles = slice_tiles_of(*slices);
        p.num_tiles = num_slices * p.slice_tiles;
        last_id = p.vocab_size + p.slice_tiles * TILE;
    }
    // Padding ids have keys too.
    while (p.vocab_size > 1 << p.id_bits || last_id > 1 << p.id_bits) p.id_bits++;
    p.slice_blocks = (p.slice_tiles + SCAN_WARPS - 1) / SCAN_WARPS;
    p.scan_blocks = p.slice_blocks * (slices ? static_cast<int>(slices->scan_count) : 1);
    size_t shared = place_shared(&p, p.num_tiles, args->vocab_size, args->num_rows);
    bool is_elsewhere = slices && slices->num_shared;
    p.shared = is_elsewhere ? static_cast<char *>(slices->shared[slices->own])
                            : reinterpret_cast<char *>(args->scratch);
    place_scratch(&p, args->scratch, is_elsewhere ? 0 : shared, p.num_tiles, args->num_rows);
    if (slices && !is_elsewhere) {
        p.slices.shared[0] = p.shared;
        p.slices.num_shared = 1;
    }
    p.team_size = team_size_of(info, args->num_rows);
    p.vectors = are_aligned(p);
    return p;
}

} // namespace

extern "C" size_t cuda_sample_scratch_floats(uint32_t vocab_size, uint32_t num_rows) {
    sample_params p = {};
    size_t num_tiles = most_tiles(vocab_size);
    size_t shared = place_shared(&p, num_tiles, vocab_size, num_rows);
    return place_scratch(&p, nullptr, shared, num_tiles, num_rows);
}

extern "C" size_t cuda_sample_shared_bytes(uint32_t vocab_size, uint32_t num_rows) {
    sample_params p = {};
    return place_shared(&p, most_tiles(vocab_size), vocab_size, num_rows) * sizeof(float);
}

extern "C" void cuda_sample_scan_launch(const struct sample_args *args,
                                        const struct cuda_logit_slices *slices,
                                        const struct cuda_device_info *info, cudaStream_t stream) {
    if (args->num_rows == 0) return;
    const sample_params p = params_of(args, slices, info);
    auto kernel = slices ? scan_kernel<true> : scan_kernel<false>;
    launch_dependent(kernel, dim3(args->num_rows * static_cast<unsigned>(p.scan_blocks)),
                     SCAN_WARPS * 32, 0, info, stream, p);
}

extern "C" void cuda_sample_finish_launch(const struct sample_args *args,
                                          const struct cuda_logit_slices *slices,
                                          const struct cuda_device_info *info,
                                          cudaStream_t stream) {
    if (args->num_rows == 0) return;
    const sample_params p = params_of(args, slices, info);
    if (p.team_size > 1) {
        launch_clusters(finish_kernel, static_cast<int>(args->num_rows), p.team_size, THREADS, 0,
                        info, stream, p);
    } else {
        launch_dependent(finish_kernel, dim3(args->num_rows), THREADS, 0, info, stream, p);
    }
}
