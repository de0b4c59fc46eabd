#include "backend/cuda/linear/e4m3_run.h"

#include "backend/cuda/linear/gemm.h"

enum {
    // From here on cuBLASLt is faster, although the codes must be written as plain rows first.
    LIBRARY_ROWS = 512,
    LIBRARY_UNIT = 16, // of the rows that it takes
    LIBRARY_OUT = 2 * CUDA_E4M3_ROWS, // the scratch memory then has room for plain codes and rows
};

static uint32_t divide_up(uint32_t a, uint32_t b) {
    return (a + b - 1) / b;
}

// Picks the least time by a formula. Its numbers are in 10 ns, from timings of 8B's shapes on an
// H200 (doc/log-cuda.md): what 128 inputs take, and what each block takes besides. Large clusters
// leave some multiprocessors without a block.
struct cuda_e4m3_blocks cuda_e4m3_blocks_for(const struct cuda_linear_task *task,
                                             uint32_t num_sms) {
    enum { SPLIT_TIME = 150, WIDTHS = 3, SPLITS = 4 };
    static const uint32_t input_times[WIDTHS] = {30, 43, 62}, block_times[WIDTHS] = {300, 430, 590};
    const uint32_t places[SPLITS] = {num_sms, num_sms, num_sms * 10 / 11, num_sms * 8 / 11};
    struct cuda_e4m3_blocks best = {32, 1};
    uint32_t rows = divide_up(task->rows, 16) * 16; // a padded step runs as without padding
    uint32_t tiles = divide_up(task->linear.out, 128), inputs = task->linear.in / CUDA_PACKED_BLOCK;
    uint32_t best_time = UINT32_MAX;
    for (uint32_t w = 0; w < WIDTHS; w++) {
        for (uint32_t s = 0; s < SPLITS && 1u << s <= inputs; s++) {
            const struct cuda_e4m3_blocks b = {32u << w, 1u << s};
            uint32_t count = tiles * divide_up(rows, b.width) * b.split;
            uint32_t one = divide_up(inputs, b.split) * input_times[w] + block_times[w];
            if (b.split > 1) one += SPLIT_TIME;
            uint32_t time = divide_up(count, places[s] ? places[s] : 1) * one;
            if (time >= best_time) continue;
            best_time = time;
            best = b;
        }
    }
    return best;
}

// How many of the rows cuBLASLt multiplies.
static uint32_t library_rows_of(const struct cuda_linear_task *task) {
    const struct cuda_linear_view *v = &task->linear;
    bool has_scales = !v->group || v->block_scales;
    if (!has_scales || v->bias || task->out_is_float || v->out < LIBRARY_OUT) return 0;
    if (task->rows < LIBRARY_ROWS) return 0;
    return task->rows / LIBRARY_UNIT * LIBRARY_UNIT;
}

// What is left of the scratch memory.
struct room {
    char *memory;
    size_t bytes;
};

// Writes the codes as plain rows into the room. Returns where they are.
static void *take_plain_codes(struct cuda_backend *cuda, const struct cuda_linear_view *v,
                              struct room *room) {
    void *codes = room->memory;
    size_t bytes = (size_t)v->out * v->in; // a multiple of 1,024
    cuda_packed_untile_launch(codes, v, cuda->stream);
    room->memory += bytes;
    room->bytes -= bytes;
    return codes;
}

static bool multiply(struct cuda_backend *cuda, const struct cuda_linear_task *task,
                     const struct cuda_rounded_rows *x, bool is_library) {
    if (is_library) return cuda_gemm_run_e4m3(cuda->gemm, task, x, cuda->stream);
    const struct cuda_e4m3_blocks b = cuda_e4m3_blocks_for(task, (uint32_t)cuda->info.num_sms);
    return cuda_e4m3_launch(task, x, &b, &cuda->info, cuda->stream);
}

void cuda_e4m3_run(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few,
                   const struct cuda_linear_task *task) {
    const struct cuda_linear_view *v = &task->linear;
    uint32_t columns = task->is_gated ? v->out / 2 : v->out;
    size_t out_bytes = (size_t)columns * (task->out_is_float ? sizeof(float) : sizeof(uint16_t));
    struct room room = {cuda->unpacked, cuda->unpacked_bytes};
    uint32_t for_library = library_rows_of(task);
    const void *plain = for_library ? take_plain_codes(cuda, v, &room) : NULL;
    size_t unit_bytes = cuda_rounded_bytes(CUDA_E4M3_ROWS, v->in, v->group);
    uint32_t rows_max = (uint32_t)(room.bytes / unit_bytes) * CUDA_E4M3_ROWS;
    struct cuda_few_rows_linear x = *few;
    struct cuda_linear_task part = *task;
    for (uint32_t done = 0; done < task->rows; done += part.rows) {
        bool is_library = done < for_library;
        uint32_t left = (is_library ? for_library : task->rows) - done;
        part.rows = left < rows_max ? left : rows_max;
        part.out = (char *)task->out + done * out_bytes;
        part.linear.weight = is_library ? plain : v->weight;
        x.rows = part.rows;
        x.x = (const char *)few->x + (size_t)done * v->in * sizeof(uint16_t);
        struct cuda_rounded_rows rounded =
            cuda_rounded_place(room.memory, part.rows, v->in, v->group);
        if (is_library && v->group) rounded.scales_stride = part.rows;
        cuda_round_rows_launch(&rounded, &x, &cuda->info, cuda->stream);
        if (!multiply(cuda, &part, &rounded, is_library)) {
            cuda_fail(cuda, "a product of 8-bit floats was refused");
        }
    }
}
