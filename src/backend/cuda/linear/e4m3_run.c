#include "backend/cuda/linear/e4m3_run.h"

#include "backend/cuda/linear/gemm.h"

enum { PLAIN_PART = 16 }; // all plain rows take at most this part of the device's memory

void cuda_e4m3_add_plain(struct cuda_backend *cuda, struct linear *linear) {
    const struct cuda_linear_view view = cuda_linear_view_of(linear);
    size_t bytes = (size_t)linear->out * linear->in, left = 0, total = 0;
    bool has_scales = !linear->format.group || linear->block_scales;
    if (!linear->format.rounds_inputs || !has_scales || !cuda->info.encode_tensor_map) return;
    if (linear->out % CUDA_E4M3_UNIT || linear->in > CUDA_E4M3_INPUTS) return;
    if (cudaMemGetInfo(&left, &total)) return;
    size_t most = total / PLAIN_PART / gpu_choice_num_sharing(&cuda->gpus, (uint32_t)cuda->device);
    if (cuda->plain_bytes + bytes > most || bytes > left / 2) return;
    if (cudaMalloc(&linear->plain, bytes)) {
        (void)cudaGetLastError(); // not an error: other kernels do without
        linear->plain = NULL;
        return;
    }
    cuda->plain_bytes += bytes;
    cuda_packed_plain_launch(linear->plain, &view, cuda->stream);
}

// What is left of the scratch memory.
struct room {
    char *memory;
    size_t bytes;
};

static void *take(struct room *room, size_t bytes) {
    void *memory = room->memory;
    room->memory += bytes;
    room->bytes -= bytes;
    return memory;
}

// cuBLASLt's rows, and where they go.
struct product {
    struct cuda_linear_task task;
    struct cuda_rounded_rows x;
    size_t out_bytes; // of the task's own rows as bf16 [rows][out]
    bool is_ragged; // rows were added, so that the result goes to scratch memory first
};

static bool copy(struct cuda_backend *cuda, void *to, const void *from, size_t bytes) {
    return !cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream);
}

static bool multiply(struct cuda_backend *cuda, const struct product *p, void *ragged) {
    struct cuda_linear_task padded = p->task;
    if (!p->is_ragged) {
        void *to = padded.is_gated ? padded.scratch : padded.out;
        if (!cuda_gemm_run_e4m3(cuda->gemm, &padded, &p->x, to, cuda->stream)) return false;
    } else {
        padded.rows = cuda_e4m3_padded(padded.rows);
        if (padded.is_added && !copy(cuda, ragged, padded.out, p->out_bytes)) return false;
        if (!cuda_gemm_run_e4m3(cuda->gemm, &padded, &p->x, ragged, cuda->stream)) return false;
        if (!padded.is_gated) return copy(cuda, padded.out, ragged, p->out_bytes);
    }
    if (!padded.is_gated) return true;
    const struct silu_mul_args gate = {p->is_ragged ? ragged : padded.scratch, padded.out,
                                       p->task.rows, padded.linear.out / 2, ACTIVATION_SILU};
    cuda_silu_mul_launch(&gate, &cuda->info, cuda->stream);
    return true;
}

// Rows of each turn: equal shares of what does not fit at once.
static uint32_t rows_of_turn(uint32_t rows, size_t fit) {
    size_t most = fit / CUDA_E4M3_UNIT * CUDA_E4M3_UNIT;
    size_t turns = (rows + most - 1) / most;
    return cuda_e4m3_padded((uint32_t)((rows + turns - 1) / turns));
}

void cuda_e4m3_run(struct cuda_backend *cuda, const struct cuda_few_rows_linear *few,
                   const struct cuda_linear_task *task) {
    const struct cuda_linear_view *v = &task->linear;
    uint32_t columns = task->is_gated ? v->out / 2 : v->out;
    const struct room room = {cuda->unpacked, cuda->unpacked_bytes};
    bool is_ragged = task->rows % CUDA_E4M3_UNIT != 0;
    size_t row_bytes = cuda_e4m3_row_bytes(v->out, v->in, v->group, is_ragged);
    struct product part = {.task = *task};
    struct cuda_few_rows_linear x = *few;
    uint32_t rows_max = rows_of_turn(task->rows, room.bytes / row_bytes);
    for (uint32_t done = 0; done < task->rows; done += part.task.rows) {
        struct room own = room;
        uint32_t rows = task->rows - done < rows_max ? task->rows - done : rows_max;
        uint32_t padded = cuda_e4m3_padded(rows);
        part.is_ragged = padded != rows;
        part.out_bytes = (size_t)rows * v->out * sizeof(uint16_t);
        part.task.rows = rows;
        part.task.out = (char *)task->out + (size_t)done * columns * sizeof(uint16_t);
        void *ragged =
            part.is_ragged ? take(&own, (size_t)padded * v->out * sizeof(uint16_t)) : NULL;
        part.x.codes = take(&own, (size_t)padded * v->in);
        part.x.scales = (float *)(void *)own.memory;
        part.x.scales_stride = v->group ? padded : 0;
        x.rows = rows;
        x.x = (const char *)few->x + (size_t)done * v->in * sizeof(uint16_t);
        cuda_round_rows_launch(&part.x, &x, &cuda->info, cuda->stream);
        if (!multiply(cuda, &part, ragged)) {
            cuda_fail(cuda, "a product of 8-bit floats was refused");
        }
    }
}
