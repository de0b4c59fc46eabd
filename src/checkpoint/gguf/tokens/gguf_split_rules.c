/* The rules by which byte-level BPE cuts a text into words, by the names that llama.cpp gives them.
 * The expressions are those of the models' own tokenizer.json where llama.cpp has rewritten them;
 * Hugging Face's tokenizers and llama.cpp apply a list of them alike. */
#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"

// clang-format off: an expression a line
static const char *const llama3[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const qwen2[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const qwen35[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
    "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const gpt2[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const digits[] = {
    "\\p{N}",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const falcon[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|`]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "[0-9][0-9][0-9]",
    NULL,
};
static const char *const plain[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "\\p{N}+",
    "[0-9][0-9][0-9]",
    NULL,
};
static const char *const deepseek_coder[] = {
    "[\\r\\n]",    "\\s?\\p{L}+",
    "\\s?\\p{P}+", "[\xe4\xb8\x80-\xe9\xbe\xa5\xe0\xa0\x80-\xe4\xb8\x80\xea\xb0\x80-\xed\x9f\xbf]+",
    "\\p{N}",      NULL,
};
static const char *const deepseek_v3[] = {
    "\\p{N}{1,3}",
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const tekken[] = {
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^"
    "\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const gpt4o[] = {
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'"
    "s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}"
    "\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const seed_coder[] = {
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| "
    "?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const bailing[] = {
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const bloom[] = {
    " ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+",
    NULL,
};
static const char *const viking[] = {
    " ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+",
    "\\p{N}",
    NULL,
};
// clang-format on

static const struct {
    const char *name;
    struct gguf_split_rule rule;
} rules[] = {
    {"llama3", {llama3, true, true}},
    {"llama-v3", {llama3, true, true}},
    {"llama-bpe", {llama3, true, true}},
    {"falcon3", {llama3, true, true}},
    {"falcon-h1", {llama3, true, true}},
    {"pixtral", {llama3, true, true}},
    {"midm-2.0", {llama3, true, true}},
    {"lfm2", {llama3, true, true}},
    {"dbrx", {llama3, false, false}},
    {"smaug-bpe", {llama3, false, false}},
    {"glm4", {llama3, false, false}},
    {"chatglm-bpe", {llama3, false, false}},
    {"qwen2", {qwen2, false, false}},
    {"deepseek-r1-qwen", {qwen2, false, false}},
    {"kormo", {qwen2, false, false}},
    {"megrez", {qwen2, false, false}},
    {"stablelm2", {qwen2, false, false}},
    {"hunyuan", {qwen2, false, false}},
    {"solar-open", {qwen2, false, false}},
    {"grok-2", {qwen2, false, false}},
    {"qwen35", {qwen35, false, false}},
    {"gpt-2", {gpt2, false, false}},
    {"phi-2", {gpt2, false, false}},
    {"mpt", {gpt2, false, false}},
    {"olmo", {gpt2, false, false}},
    {"jais", {gpt2, false, false}},
    {"trillion", {gpt2, false, false}},
    {"granite-docling", {gpt2, false, false}},
    {"exaone4", {gpt2, false, false}},
    {"gigachat", {gpt2, false, false}},
    {"a.x-4.0", {gpt2, false, false}},
    {"mellum", {gpt2, false, false}},
    {"starcoder", {digits, false, false}},
    {"refact", {digits, false, false}},
    {"command-r", {digits, false, false}},
    {"smollm", {digits, false, false}},
    {"codeshell", {digits, false, false}},
    {"exaone", {digits, false, false}},
    {"minerva-7b", {digits, false, false}},
    {"mellum2", {digits, false, false}},
    {"falcon", {falcon, false, false}},
    {"default", {plain, false, false}},
    {"deepseek-coder", {deepseek_coder, false, false}},
    {"deepseek-v3", {deepseek_v3, false, false}},
    {"hunyuan-dense", {deepseek_v3, false, false}},
    {"joyai-llm", {deepseek_v3, false, false}},
    {"tekken", {tekken, true, true}},
    {"gpt-4o", {gpt4o, false, false}},
    {"llama4", {gpt4o, false, false}},
    {"kanana2", {gpt4o, false, false}},
    {"talkie", {gpt4o, false, false}},
    {"minimax-m2", {gpt4o, false, false}},
    {"seed-coder", {seed_coder, false, false}},
    {"bailingmoe", {bailing, false, false}},
    {"bailingmoe2", {bailing, false, false}},
    {"llada-moe", {bailing, false, false}},
    {"poro-chat", {bloom, false, false}},
    {"bloom", {bloom, false, false}},
    {"gpt3-finnish", {bloom, false, false}},
    {"viking", {viking, false, false}},
};

bool gguf_find_split_rule(struct gguf_string name, struct gguf_split_rule *out) {
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        if (!gguf_string_is(name, rules[i].name)) continue;
        *out = rules[i].rule;
        return true;
    }
    return false;
}
