#include "checkpoint/tokens/token_json.h"

#include "base/json/json_out.h"
#include "base/text/byte_level.h"
#include "base/text/utf8.h"

void token_json_byte_level(struct json_out *out, const char *bytes, size_t len) {
    char text[2 * 64];
    json_out_raw(out, "\"");
    for (size_t i = 0; i < len;) {
        size_t size = 0;
        for (; i < len && size + 2 <= sizeof text; i++) {
            uint32_t c = byte_level_char((unsigned char)bytes[i]);
            if (c == '"' || c == '\\') text[size++] = '\\';
            size += utf8_write(c, text + size);
        }
        json_out_bytes(out, text, size);
    }
    json_out_raw(out, "\"");
}

void token_json_byte_level_components(struct json_out *out, const char *const *patterns) {
    json_out_raw(out, "\"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": "
                      "\"Sequence\", \"pretokenizers\": [");
    for (const char *const *pattern = patterns; *pattern; pattern++) {
        json_out_raw(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        json_out_cstring(out, *pattern);
        json_out_raw(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    json_out_raw(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                      "true, \"use_regex\": false}]}, ");
}

void token_json_spm_components(struct json_out *out, bool adds_space) {
    json_out_raw(out, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    if (adds_space) {
        json_out_raw(out, "{\"type\": \"Prepend\", \"prepend\": \"\xe2\x96\x81\"}, ");
    }
    json_out_raw(out, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
                      "\"\xe2\x96\x81\"}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": "
                      "[{\"type\": \"Replace\", \"pattern\": {\"String\": \"\xe2\x96\x81\"}, "
                      "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}");
    if (adds_space) {
        json_out_raw(out, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
                          "\"stop\": 0}");
    }
    json_out_raw(out, "]}, ");
}

static void write_template_token(struct json_out *out, const struct token_text *token) {
    json_out_raw(out, "{\"SpecialToken\": {\"id\": ");
    json_out_string(out, token->text, token->len);
    json_out_raw(out, ", \"type_id\": 0}}");
}

static void write_template_id(struct json_out *out, const struct token_text *token, int64_t id) {
    json_out_string(out, token->text, token->len);
    json_out_rawf(out, ": {\"ids\": [%lld]}", (long long)id);
}

void token_json_post_processor(struct json_out *out, const struct token_text *bos, int64_t bos_id,
                               const struct token_text *eos, int64_t eos_id) {
    if (!bos && !eos) return;
    json_out_raw(out, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [");
    if (bos) write_template_token(out, bos);
    json_out_raw(out, bos ? ", " : "");
    json_out_raw(out, "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}");
    json_out_raw(out, eos ? ", " : "");
    if (eos) write_template_token(out, eos);
    json_out_raw(out, "], \"special_tokens\": {");
    if (bos) write_template_id(out, bos, bos_id);
    if (eos && (!bos || eos_id != bos_id)) {
        json_out_raw(out, bos ? ", " : "");
        write_template_id(out, eos, eos_id);
    }
    json_out_raw(out, "}}, ");
}
