/* The rules by which byte-level BPE cuts a text into words, by the names that llama.cpp gives them.
 * The expressions are those of the models' own tokenizer.json where llama.cpp has rewritten them;
 * Hugging Face's tokenizers and llama.cpp apply a list of them alike. */
#include "base/compiler.h"
#include "checkpoint/gguf/file/gguf_read.h"
#include "checkpoint/gguf/tokens/gguf_tokens.h"
#include "checkpoint/tokens/tokenizer_form.h"

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
// Of DeepSeek-V2, DeepSeek-Coder-V2 and DeepSeek LLM: letters that have cases, and punctuation.
static const char *const deepseek_llm[] = {
    "[\\r\\n]",
    "\\s?[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf"
    "\\u01c4-\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f"
    "\\u0386\\u0388-\\u038a\\u038c\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481"
    "\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd"
    "\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a"
    "\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59"
    "\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4"
    "\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4"
    "\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126"
    "\\u2128\\u212a-\\u212d\\u212f-\\u2134\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e"
    "\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3"
    "\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e"
    "\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a"
    "\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}"
    "\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+",
    "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+",
    "\\s+$",
    "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+",
    "\\p{N}+",
    NULL,
};
static const char *const kimi[] = {tiktoken_pattern, NULL};
// Digits in threes from the right.
static const char *const tiny_aya[] = {
    "\\d{1,3}(?=(?:\\d{3})*\\b)",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'"
    "s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}"
    "\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
};
static const char *const minicpm5[] = {
    "\\p{N}{1,3}",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    NULL,
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
    {"f2llmv2", {qwen2, false, false}},
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
    {"deepseek-llm", {deepseek_llm, false, false}},
    {"deepseek-coder", {deepseek_coder, false, false}},
    {"deepseek-v3", {deepseek_v3, false, false}},
    {"hunyuan-dense", {deepseek_v3, false, false}},
    {"joyai-llm", {deepseek_v3, false, false}},
    {"kimi-k2", {kimi, false, false}},
    {"tiny_aya", {tiny_aya, false, false}},
    {"minicpm5", {minicpm5, true, false}},
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
