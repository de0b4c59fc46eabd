#include "backend/cuda/linear/e4m3_run.h"

#include "backend/cuda/gemm/gemm.h"

enum { PLAIN_PART = 8 }; // plain rows take at most this part of the spare memory

static size_t plain_bytes(const struct linear *linear) {
    return (size_t)linear->out * linear->in;
}

void cuda_e4m3_wait(struct cuda_backend *cuda, struct linear *linear) {
    bool has_scales = !linear->format.group || linear->block_scales;
    if (!linear->format.rounds_inputs || !has_scales || !cuda->info.encode_tensor_map) return;
    if (linear->out % CUDA_E4M3_UNIT || linear->in > CUDA_E4M3_INPUTS) return;
    linear->next_waiting = cuda->waiting;
    cuda->waiting = linear;
}

void cuda_e4m3_forget(struct cuda_backend *cuda, const struct linear *linear) {
    struct linear **at = &cuda->waiting;
    while (*at && *at != linear) at = &(*at)->next_waiting;
    if (*at) *at = linear->next_waiting;
}

void cuda_e4m3_keep_plain(struct cuda_backend *cuda, size_t spare_bytes) {
    size_t bytes = 0;
    struct linear *linear = cuda->waiting;
    cuda->waiting = NULL;
    for (const struct linear *l = linear; l; l = l->next_waiting) bytes += plain_bytes(l);
    if (bytes > spare_bytes / PLAIN_PART) return;
    for (; linear; linear = linear->next_waiting) {
        const struct cuda_linear_view view = cuda_linear_view_of(linear);
        if (cudaMalloc(&linear->plain, plain_bytes(linear))) {
            (void)cudaGetLastError(); // no failure: the linear does without
            linear->plain = NULL;
            return;
        }
        cuda_packed_plain_launch(linear->plain, &view, cuda->stream);
    }
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

// The rows of one product, and where they go.
struct product {
    struct cuda_linear_task task;
    struct cuda_rounded_rows x;
    size_t out_bytes; // of the task's own rows as bf16 [rows][out]
    bool is_batch; // linear/e4m3_batch_sm90.cu, which takes any count of rows
    bool is_ragged; // cuBLASLt: rows were added, so that the result goes to scratch memory first
    bool leaves_gating;
};

static bool copy(struct cuda_backend *cuda, void *to, const void *from, size_t bytes) {
    return !cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream);
}

static bool multiply(struct cuda_backend *cuda, const struct product *p, void *ragged) {
    struct cuda_linear_task padded = p->task;
    void *to = padded.is_gated ? padded.scratch : padded.out;
    if (p->is_batch) {
        if (!cuda_e4m3_batch_launch(&padded, &p->x, to, 0, &cuda->info, cuda->stream)) return false;
    } else if (!p->is_ragged) {
        if (!cuda_gemm_run_e4m3(cuda->gemm, &padded, &p->x, to, cuda->stream)) return false;
    } else {
        padded.rows = cuda_e4m3_padded(padded.rows);
        if (padded.is_added && !copy(cuda, ragged, padded.out, p->out_bytes)) return false;
        if (!cuda_gemm_run_e4m3(cuda->gemm, &padded, &p->x, ragged, cuda->stream)) return false;
        if (!padded.is_gated) return copy(cuda, padded.out, ragged, p->out_bytes);
        if (p->leaves_gating) return copy(cuda, padded.scratch, ragged, p->out_bytes);
    }
    if (!padded.is_gated || p->leaves_gating) return true;
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
                   const struct cuda_linear_task *task, bool is_batch) {
    const struct cuda_linear_view *v = &task->linear;
    uint32_t columns = task->is_gated ? v->out / 2 : v->out;
    struct room room = {cuda->unpacked, cuda->unpacked_bytes};
    bool is_ragged = !is_batch && task->rows % CUDA_E4M3_UNIT != 0;
    size_t row_bytes = cuda_e4m3_row_bytes(v->out, v->in, v->group, is_ragged);
    const char *gate_up = cuda->step.gate_up;
    struct product part = {.task = *task,
                           .is_batch = is_batch,
                           .leaves_gating = task->is_gated && cuda->step.leaves_gating};
    struct cuda_few_rows_linear x = *few;
    if (!v->plain) {
        void *plain = take(&room, (size_t)v->out * v->in);
        cuda_packed_plain_launch(plain, v, cuda->stream);
        part.task.linear.plain = plain;
    }
    uint32_t rows_max = rows_of_turn(task->rows, room.bytes / row_bytes);
    for (uint32_t done = 0; done < task->rows; done += part.task.rows) {
        struct room own = room;
        uint32_t rows = task->rows - done < rows_max ? task->rows - done : rows_max;
        uint32_t padded = cuda_e4m3_padded(rows);
        part.is_ragged = !is_batch && padded != rows;
        part.out_bytes = (size_t)rows * v->out * sizeof(uint16_t);
        part.task.rows = rows;
        part.task.out = (char *)task->out + (size_t)done * columns * sizeof(uint16_t);
        if (task->is_gated) {
            part.task.scratch = (char *)task->scratch + (size_t)done * v->out * sizeof(uint16_t);
        }
        void *ragged =
            part.is_ragged ? take(&own, (size_t)padded * v->out * sizeof(uint16_t)) : NULL;
        part.x.codes = take(&own, (size_t)padded * v->in);
        part.x.scales = (float *)(void *)own.memory;
        part.x.scales_stride = v->group ? padded : 0;
        x.rows = rows;
        x.x = (const char *)few->x + (size_t)done * v->in * sizeof(uint16_t);
        const char *own_gate_up =
            gate_up ? gate_up + (size_t)done * v->in * 2 * sizeof(uint16_t) : NULL;
        cuda_round_rows_launch(&part.x, &x, own_gate_up, &cuda->info, cuda->stream);
        if (!multiply(cuda, &part, ragged)) {
            cuda_fail(cuda, "a product of 8-bit floats was refused");
        }
    }
    cuda->step.gate_up = part.leaves_gating ? task->scratch : NULL;
}
