/* GPTQ and AWQ store a linear's codes input by input, [in][out], while a reader gives outputs. So
 * all codes are read once, and the words are turned round: in memory an output's codes follow each
 * other.
 *
 * gptq: a word has the codes of consecutive inputs of one output, the first in the low bits. Those
 * are the words that are wanted, in another order.
 *
 * awq: a word has the codes of one input for 8 outputs, in the order 0 2 4 6 1 3 5 7 from the low
 * bits on. Eight words of eight inputs, 8 x 8 codes, are transposed in registers. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/quantized/quantized_module.h"

enum {
    WORDS = 16, // of an output that are written together: a line of the cache
    AWQ_CODES = 8, // of a word
};

static const uint8_t awq_order[AWQ_CODES] = {0, 2, 4, 6, 1, 3, 5, 7};

// Bytes [offset, offset + len) of a tensor in `buffer`.
static enum status load(const struct tensor *t, uint64_t offset, size_t len, void *buffer,
                        struct err *err) {
    const void *bytes = byte_source_get(&t->source, offset, len, buffer, err);
    if (!bytes) return ERR_IO;
    if (bytes != buffer) memcpy(buffer, bytes, len);
    return OK;
}

// words[i] gets code i of each word, in the order of the words.
static void transpose(uint32_t words[AWQ_CODES]) {
    static const struct {
        uint32_t distance, mask;
    } steps[] = {{4, 0x0000ffff}, {2, 0x00ff00ff}, {1, 0x0f0f0f0f}};
    for (size_t s = 0; s < ARRAY_LEN(steps); s++) {
        uint32_t distance = steps[s].distance;
        for (uint32_t i = 0; i < AWQ_CODES; i++) {
            if (i & distance) continue;
            uint32_t *a = &words[i], *b = &words[i + distance];
            uint32_t swapped = (*a >> (4 * distance) ^ *b) & steps[s].mask;
            *b ^= swapped;
            *a ^= swapped << (4 * distance);
        }
    }
}

// Words first .. first + count - 1 of every output. from: [count][out].
static void place_gptq(struct quantized_matrix *m, uint64_t first, uint64_t count,
                       const uint32_t *from) {
    for (uint64_t r = 0; r < m->rows; r++) {
        uint32_t *to = (uint32_t *)(void *)((char *)m->memory + r * m->row_bytes) + first;
        for (uint64_t w = 0; w < count; w++) to[w] = from[w * m->rows + r];
    }
}

// The same. from: [count][8 inputs][out / 8].
static void place_awq(struct quantized_matrix *m, uint64_t first, uint64_t count,
                      const uint32_t *from) {
    uint64_t columns = m->rows / AWQ_CODES;
    for (uint64_t column = 0; column < columns; column++) {
        for (uint64_t w = 0; w < count; w++) {
            uint32_t words[AWQ_CODES];
            for (uint64_t k = 0; k < AWQ_CODES; k++) {
                words[k] = from[(w * AWQ_CODES + k) * columns + column];
            }
            transpose(words);
            for (uint64_t i = 0; i < AWQ_CODES; i++) {
                uint64_t r = column * AWQ_CODES + awq_order[i];
                char *row = (char *)m->memory + r * m->row_bytes;
                memcpy(row + (first + w) * sizeof(uint32_t), &words[i], sizeof words[i]);
            }
        }
    }
}

static enum status load_codes(struct quantized_matrix *m, const struct tensor *qweight, bool is_awq,
                              struct err *err) {
    uint64_t num_words = m->row_bytes / sizeof(uint32_t); // of an output
    size_t word_bytes = m->rows * sizeof(uint32_t); // of all outputs
    m->memory = malloc(m->rows * m->row_bytes);
    uint32_t *buffer = malloc(WORDS * word_bytes);
    if (!m->memory || !buffer) {
        free(buffer);
        return err_nomem(err, "quantized weights");
    }
    enum status status = OK;
    for (uint64_t first = 0; first < num_words && !status; first += WORDS) {
        uint64_t left = num_words - first, count = left < WORDS ? left : WORDS;
        status = load(qweight, first * word_bytes, count * word_bytes, buffer, err);
        if (status) break;
        if (is_awq) {
            place_awq(m, first, count, buffer);
        } else {
            place_gptq(m, first, count, buffer);
        }
    }
    free(buffer);
    m->codes = (struct byte_source){.data = m->memory};
    return status;
}

uint32_t quantized_code_at(const uint32_t *words, uint64_t stride, uint64_t index, uint32_t bits) {
    uint64_t first = index * bits, shift = first % 32;
    const uint32_t *word = words + first / 32 * stride;
    uint64_t both = *word;
    if (shift + bits > 32) both |= (uint64_t)word[stride] << 32;
    return (uint32_t)(both >> shift) & ((1u << bits) - 1);
}

// qzeros are [groups][words], packed along the outputs: awq's in its order.
static enum status load_zeros(struct quantized_matrix *m, const struct tensor *qzeros,
                              const struct quantization_config *config, struct err *err) {
    uint32_t bits = config->bits, mask = (1u << bits) - 1;
    uint64_t num_words = m->rows * bits / 32; // of a group
    uint32_t more = config->is_zero_less_one; // zeros wrap round: a zero of 0 is stored as all ones
    m->zeros = malloc(m->rows * m->num_groups);
    uint32_t *words = malloc(qzeros->size_bytes);
    if (!m->zeros || !words) {
        free(words);
        return err_nomem(err, "zeros of weights");
    }
    enum status status = load(qzeros, 0, qzeros->size_bytes, words, err);
    for (uint64_t at = 0; at < m->num_groups * m->rows && !status; at++) {
        uint64_t g = at / m->rows, column = at % m->rows, place = column % AWQ_CODES;
        uint64_t r = column;
        if (config->method == QUANTIZED_AWQ) r = column - place + awq_order[place];
        uint32_t zero = quantized_code_at(words + g * num_words, 1, column, bits);
        m->zeros[r * m->num_groups + g] = (uint8_t)((zero + more) & mask);
    }
    free(words);
    return status;
}

enum status quantized_columns_load(struct quantized_matrix *matrix,
                                   const struct quantized_module *module,
                                   const struct quantization_config *config, struct err *err) {
    bool is_awq = config->method == QUANTIZED_AWQ;
    matrix->row_bytes = matrix->cols * config->bits / 8;
    enum status status = load_codes(matrix, module->parts[PART_QWEIGHT], is_awq, err);
    // A symmetric checkpoint of either version has the middle code as its zero, and there are some
    // whose stored zeros are those of the other version.
    bool is_middle = !is_awq && config->is_symmetric;
    if (is_middle) matrix->zero = (uint8_t)(1u << (config->bits - 1));
    return status || is_middle ? status
                               : load_zeros(matrix, module->parts[PART_QZEROS], config, err);
}
