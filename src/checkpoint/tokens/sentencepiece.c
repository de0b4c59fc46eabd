/* tokenizer.model of SentencePiece, as Llama 2 and Mistral 7B have it: a message of protobuf with
 * the pieces, how they were trained, and how texts are normalised. Of its kinds of model BPE is
 * read: of all pairs of neighbours that make a piece, the one whose piece has the highest score is
 * joined first. Whether a text begins with the piece of bos says tokenizer_config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/jread.h"
#include "base/json/json_out.h"
#include "base/text/utf8.h"
#include "checkpoint/tokens/token_json.h"
#include "checkpoint/tokens/tokenizer_form.h"

enum { PIECES_MAX = 1 << 22, DEPTHS = 2 };

enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6,
};

enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE = 2, MODEL_WORD = 3, MODEL_CHAR = 4 };

// What remains of a message.
struct message {
    const unsigned char *p, *end;
};

struct field {
    uint32_t number;
    uint64_t value; // of a number; the bits of a float
    struct message bytes; // of a string or a message; p is NULL for a number
};

struct spm {
    const char *what;
    struct token_text *pieces; // [num_pieces]
    uint8_t *types; // [num_pieces], enum piece_type
    size_t num_pieces;
    int64_t model_type, bos, eos; // ids; none where no piece has it
    bool byte_fallback, is_suffix;
    bool adds_space, trims_spaces, escapes_spaces;
    size_t charsmap_len;
    struct message normalizer_name;
};

static bool read_varint(struct message *message, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && message->p < message->end; shift += 7) {
        unsigned char byte = *message->p++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool read_fixed(struct message *message, size_t size, uint64_t *value) {
    *value = 0;
    if ((size_t)(message->end - message->p) < size) return false;
    for (size_t i = 0; i < size; i++) *value |= (uint64_t)*message->p++ << (8 * i);
    return true;
}

// The next field of a message that has not ended. False: it is broken.
static bool next_field(struct message *message, struct field *field) {
    enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
    uint64_t tag;
    *field = (struct field){0};
    if (!read_varint(message, &tag) || tag >> 3 == 0 || tag >> 32) return false;
    field->number = (uint32_t)(tag >> 3);
    unsigned wire = tag & 7;
    if (wire == FIXED64) return read_fixed(message, 8, &field->value);
    if (wire == FIXED32) return read_fixed(message, 4, &field->value);
    if (!read_varint(message, &field->value)) return false;
    if (wire == VARINT) return true;
    if (wire != BYTES || field->value > (uint64_t)(message->end - message->p)) return false;
    field->bytes = (struct message){message->p, message->p + field->value};
    message->p = field->bytes.end;
    return true;
}

static enum status broken(const struct spm *spm, struct err *err) {
    return err_set(err, ERR_FORMAT, "%s is not a SentencePiece model, or is cut off", spm->what);
}

static enum status read_piece(struct spm *spm, size_t id, struct message message, struct err *err) {
    struct token_text *piece = &spm->pieces[id];
    uint64_t type = PIECE_NORMAL;
    struct field field;
    *piece = (struct token_text){.text = ""};
    while (message.p < message.end) {
        if (!next_field(&message, &field)) return broken(spm, err);
        if (field.number == 1 && field.bytes.p) {
            piece->text = (const char *)field.bytes.p;
            piece->len = (size_t)(field.bytes.end - field.bytes.p);
        } else if (field.number == 2) {
            uint32_t bits = (uint32_t)field.value;
            memcpy(&piece->score, &bits, sizeof bits);
        } else if (field.number == 3) {
            type = field.value;
        }
    }
    const char *wrong = !piece->len                                                ? "no text"
                        : utf8_valid_prefix(piece->text, piece->len) != piece->len ? "no UTF-8"
                        : isnan(piece->score)                                      ? "no score"
                                                                                   : NULL;
    if (wrong) return err_set(err, ERR_FORMAT, "%s: piece %zu has %s", spm->what, id, wrong);
    if (type < PIECE_NORMAL || type > PIECE_BYTE || type == PIECE_UNUSED) {
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: piece %zu is of type %llu, which is not supported", spm->what, id,
                       (unsigned long long)type);
    }
    piece->is_never_joined = type == PIECE_CONTROL || type == PIECE_UNKNOWN || type == PIECE_BYTE;
    spm->types[id] = (uint8_t)type;
    return OK;
}

static enum status read_trainer(struct spm *spm, struct message message, struct err *err) {
    struct field field;
    while (message.p < message.end) {
        if (!next_field(&message, &field)) return broken(spm, err);
        if (field.number == 3) spm->model_type = (int64_t)field.value;
        if (field.number == 24) spm->is_suffix = field.value != 0;
        if (field.number == 35) spm->byte_fallback = field.value != 0;
        if (field.number == 41) spm->bos = (int64_t)field.value;
        if (field.number == 42) spm->eos = (int64_t)field.value;
    }
    return OK;
}

static enum status read_normalizer(struct spm *spm, struct message message, struct err *err) {
    struct field field;
    while (message.p < message.end) {
        if (!next_field(&message, &field)) return broken(spm, err);
        if (field.number == 1) spm->normalizer_name = field.bytes;
        if (field.number == 2) spm->charsmap_len = (size_t)(field.bytes.end - field.bytes.p);
        if (field.number == 3) spm->adds_space = field.value != 0;
        if (field.number == 4) spm->trims_spaces = field.value != 0;
        if (field.number == 5) spm->escapes_spaces = field.value != 0;
    }
    return OK;
}

static enum status count_pieces(struct spm *spm, struct message message, struct err *err) {
    struct field field;
    while (message.p < message.end) {
        if (!next_field(&message, &field)) return broken(spm, err);
        spm->num_pieces += field.number == 1 && field.bytes.p;
    }
    if (!spm->num_pieces || spm->num_pieces > PIECES_MAX) return broken(spm, err);
    return OK;
}

static enum status read_fields(struct spm *spm, struct message message, struct err *err) {
    struct field field;
    enum status status = OK;
    for (size_t id = 0; message.p < message.end && !status;) {
        if (!next_field(&message, &field)) return broken(spm, err);
        if (!field.bytes.p) continue;
        if (field.number == 1) status = read_piece(spm, id++, field.bytes, err);
        if (field.number == 2) status = read_trainer(spm, field.bytes, err);
        if (field.number == 3) status = read_normalizer(spm, field.bytes, err);
    }
    return status;
}

// With byte fallback each byte needs its piece, or a character without one would be lost.
static enum status check_bytes(const struct spm *spm, struct err *err) {
    enum { BYTE_TEXT_LEN = sizeof "<0x41>" - 1 };
    bool has[256] = {false};
    for (size_t id = 0; id < spm->num_pieces; id++) {
        char own[8] = "";
        const struct token_text *piece = &spm->pieces[id];
        if (spm->types[id] != PIECE_BYTE) continue;
        snprintf(own, sizeof own, "%.*s", piece->len == BYTE_TEXT_LEN ? BYTE_TEXT_LEN : 0,
                 piece->text);
        unsigned long byte = *own ? strtoul(own + 3, NULL, 16) : 0;
        snprintf(own, sizeof own, "<0x%02X>", (unsigned)byte & 0xff);
        if (piece->len != BYTE_TEXT_LEN || memcmp(piece->text, own, BYTE_TEXT_LEN) != 0) {
            return err_set(err, ERR_FORMAT, "%s: piece %zu stands for no byte", spm->what, id);
        }
        has[byte & 0xff] = true;
    }
    for (unsigned byte = 0; byte < 256 && spm->byte_fallback; byte++) {
        if (has[byte]) continue;
        return err_set(err, ERR_FORMAT, "%s: byte 0x%02x has no piece", spm->what, byte);
    }
    return OK;
}

static enum status check(const struct spm *spm, struct err *err) {
    static const char *const names[] = {"", "Unigram", "BPE", "Word", "Char"};
    int64_t type = spm->model_type;
    if (type != MODEL_BPE) {
        return err_set(err, ERR_UNSUPPORTED, "%s: model of type \"%s\" is not supported, want BPE",
                       spm->what, type > 0 && type <= MODEL_CHAR ? names[type] : "unknown");
    }
    if (spm->charsmap_len) {
        struct message name = spm->normalizer_name;
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: the normalizer \"%.*s\" is not supported, want identity", spm->what,
                       name.p && name.end - name.p < 60 ? (int)(name.end - name.p) : 0,
                       name.p ? (const char *)name.p : "");
    }
    const char *option = spm->trims_spaces      ? "remove_extra_whitespaces"
                         : !spm->escapes_spaces ? "escape_whitespaces being off"
                         : spm->is_suffix       ? "treat_whitespace_as_suffix"
                                                : NULL;
    if (!option) return check_bytes(spm, err);
    return err_set(err, ERR_UNSUPPORTED, "%s: %s is not supported", spm->what, option);
}

static void spm_fini(struct spm *spm) {
    free(spm->pieces);
    free(spm->types);
}

// spm_fini frees it, after a fault too.
static enum status spm_read(struct spm *spm, const struct form_source *source, struct err *err) {
    const unsigned char *text = (const unsigned char *)source->text;
    const struct message message = {text, text + source->len};
    *spm = (struct spm){.what = source->what,
                        .model_type = MODEL_UNIGRAM,
                        .bos = 1,
                        .eos = 2,
                        .adds_space = true,
                        .trims_spaces = true,
                        .escapes_spaces = true};
    enum status status = count_pieces(spm, message, err);
    if (status) return status;
    spm->pieces = calloc(spm->num_pieces, sizeof *spm->pieces);
    spm->types = calloc(spm->num_pieces, sizeof *spm->types);
    if (!spm->pieces || !spm->types) return err_nomem(err, "pieces");
    status = read_fields(spm, message, err);
    return status ? status : check(spm, err);
}

static const struct token_text *piece_at(const struct spm *spm, int64_t id) {
    return id >= 0 && (uint64_t)id < spm->num_pieces ? &spm->pieces[id] : NULL;
}

static void write_piece(struct json_out *out, const struct token_text *piece) {
    json_out_string(out, piece->text, piece->len);
}

static void write_added_tokens(const struct spm *spm, struct json_out *out) {
    bool is_first = true;
    json_out_raw(out, "\"added_tokens\": [");
    for (size_t id = 0; id < spm->num_pieces; id++) {
        bool is_plain = spm->types[id] == PIECE_USER_DEFINED;
        if (!is_plain && spm->types[id] != PIECE_CONTROL && spm->types[id] != PIECE_UNKNOWN) {
            continue;
        }
        json_out_rawf(out, "%s{\"id\": %zu, \"content\": ", is_first ? "" : ", ", id);
        write_piece(out, &spm->pieces[id]);
        json_out_rawf(out, ", \"normalized\": false, \"special\": %s}",
                      is_plain ? "false" : "true");
        is_first = false;
    }
    json_out_raw(out, "], ");
}

static enum status write_model(const struct spm *spm, struct json_out *out, struct err *err) {
    json_out_rawf(out, "\"model\": {\"type\": \"BPE\", \"byte_fallback\": %s, \"fuse_unk\": true, ",
                  spm->byte_fallback ? "true" : "false");
    for (size_t id = 0; id < spm->num_pieces; id++) {
        if (spm->types[id] != PIECE_UNKNOWN) continue;
        json_out_raw(out, "\"unk_token\": ");
        write_piece(out, &spm->pieces[id]);
        json_out_raw(out, ", ");
        break;
    }
    json_out_raw(out, "\"vocab\": {");
    for (size_t id = 0; id < spm->num_pieces; id++) {
        json_out_raw(out, id ? ", " : "");
        write_piece(out, &spm->pieces[id]);
        json_out_rawf(out, ": %zu", id);
    }
    json_out_raw(out, "}, ");
    enum status status =
        token_json_merges(spm->pieces, spm->num_pieces, false, spm->what, out, err);
    json_out_raw(out, "}");
    return status;
}

// A token that the file does not have is left out.
static enum status write_post_processor(const struct spm *spm, const struct form_source *source,
                                        struct json_out *out, struct err *err) {
    bool adds_bos = true, adds_eos = false;
    enum status status = jread_bool(source->config, "add_bos_token", &adds_bos, source->what, err);
    if (!status) status = jread_bool(source->config, "add_eos_token", &adds_eos, source->what, err);
    const struct token_text *bos = adds_bos ? piece_at(spm, spm->bos) : NULL;
    const struct token_text *eos = adds_eos ? piece_at(spm, spm->eos) : NULL;
    if (!status) token_json_post_processor(out, bos, spm->bos, eos, spm->eos);
    return status;
}

enum status sentencepiece_write_tokenizer(const struct form_source *source, struct json_out *out,
                                          struct err *err) {
    struct spm spm;
    enum status status = spm_read(&spm, source, err);
    if (!status) {
        json_out_raw(out, "{\"version\": \"1.0\", ");
        token_json_spm_components(out, spm.adds_space);
        status = write_post_processor(&spm, source, out, err);
    }
    if (!status) {
        write_added_tokens(&spm, out);
        status = write_model(&spm, out, err);
        json_out_raw(out, "}");
    }
    spm_fini(&spm);
    return status;
}

enum status sentencepiece_write_config(const struct form_source *source, struct json_out *out,
                                       struct err *err) {
    struct spm spm;
    enum status status = spm_read(&spm, source, err);
    if (!status) {
        const struct token_text *bos = piece_at(&spm, spm.bos), *eos = piece_at(&spm, spm.eos);
        json_out_raw(out, "{");
        if (bos) json_out_raw(out, "\"bos_token\": ");
        if (bos) write_piece(out, bos);
        if (eos) json_out_raw(out, bos ? ", \"eos_token\": " : "\"eos_token\": ");
        if (eos) write_piece(out, eos);
        json_out_raw(out, "}");
    }
    spm_fini(&spm);
    return status;
}
