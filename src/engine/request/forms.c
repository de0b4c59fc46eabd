#include "engine/request/forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/text/blank.h"
#include "structured/read/outputs.h"
#include "structured/vocabulary/vocabulary_tokenizer.h"

enum status forms_init(struct forms *forms, const struct forms_options *options, struct err *err) {
    *forms = (struct forms){.options = *options};
    if (pthread_mutex_init(&forms->lock, NULL)) return err_nomem(err, "structured output");
    forms->is_ready = true;
    return OK;
}

void forms_fini(struct forms *forms) {
    for (size_t i = 0; i < FORMS_KEPT; i++) {
        automaton_release(forms->kept[i].automaton);
        free(forms->kept[i].text);
    }
    for (size_t i = 0; i < FORMS_REFUSALS; i++) free(forms->refused[i].text);
    vocabulary_destroy(forms->vocabulary);
    free(forms->blanks);
    if (forms->is_ready) pthread_mutex_destroy(&forms->lock);
    *forms = (struct forms){0};
}

static enum status find_blanks(struct forms *forms, struct err *err) {
    uint32_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t id = 0; id < forms->options.vocab_size; id++) {
            size_t len = 0;
            const char *bytes = tokenizer_token_bytes(forms->options.tokenizer, (int32_t)id, &len);
            if (!bytes || !len || len > FORMS_BLANK_BYTES_MAX || !is_all_blank(bytes, len))
                continue;
            if (pass) forms->blanks[forms->num_blanks++] = (int32_t)id;
            count += !pass;
        }
        if (!pass && !(forms->blanks = malloc((count + 1) * sizeof *forms->blanks))) {
            return err_nomem(err, "structured output");
        }
    }
    return OK;
}

// With the lock.
static enum status prepare(struct forms *forms, struct err *err) {
    if (forms->vocabulary) return OK;
    const struct forms_options *o = &forms->options;
    if (!o->tokenizer) {
        return err_set(err, ERR_INVALID,
                       "structured_outputs need the tokenizer, which skip_tokenizer_init left out");
    }
    enum status status = forms->blanks ? OK : find_blanks(forms, err);
    if (status) return status;
    return vocabulary_of_tokenizer(&forms->vocabulary, o->tokenizer, o->vocab_size, o->ending,
                                   o->num_ending, err);
}

static void drop(struct form *form) {
    automaton_release(form->automaton);
    free(form->text);
    *form = (struct form){0};
}

// With the lock: the kept automaton of the text, held once more, or NULL.
static struct automaton *find(struct forms *forms, const char *text, size_t len) {
    for (size_t i = 0; i < FORMS_KEPT; i++) {
        struct form *form = &forms->kept[i];
        if (!form->automaton || form->len != len || memcmp(form->text, text, len) != 0) continue;
        if (automaton_is_worn(form->automaton)) { // its sequences keep it, later ones get a new one
            drop(form);
            return NULL;
        }
        form->last_use = ++forms->num_uses;
        automaton_hold(form->automaton);
        return form->automaton;
    }
    return NULL;
}

// With the lock: the least recently used form, NULL if none is kept; *bytes is the memory of all.
static struct form *find_oldest(struct forms *forms, size_t *bytes) {
    struct form *oldest = NULL;
    *bytes = 0;
    for (size_t i = 0; i < FORMS_KEPT; i++) {
        struct form *form = &forms->kept[i];
        if (!form->automaton) continue;
        struct automaton_stats stats;
        automaton_stats(form->automaton, &stats);
        *bytes += stats.bytes;
        if (!oldest || form->last_use < oldest->last_use) oldest = form;
    }
    return oldest;
}

// With the lock: makes the memory of kept forms as small as it should be.
static void shrink(struct forms *forms) {
    for (;;) {
        size_t bytes;
        struct form *oldest = find_oldest(forms, &bytes);
        if (!oldest || bytes <= FORMS_BYTES_MAX) return;
        drop(oldest);
    }
}

// With the lock: replaces the least recently used form.
static void keep(struct forms *forms, const char *text, size_t len, struct automaton *automaton) {
    char *copy = malloc(len + 1);
    if (!copy) return; // then it is compiled again the next time
    memcpy(copy, text, len);
    struct form *oldest = &forms->kept[0];
    for (size_t i = 1; i < FORMS_KEPT; i++) {
        if (forms->kept[i].last_use < oldest->last_use) oldest = &forms->kept[i];
    }
    automaton_release(oldest->automaton);
    free(oldest->text);
    automaton_hold(automaton);
    *oldest = (struct form){copy, len, automaton, ++forms->num_uses};
}

// ---- refusals ----

// With the lock: why the text was refused before. OK: it was not, or that is forgotten.
static enum status find_refusal(struct forms *forms, const char *text, size_t len,
                                struct err *err) {
    for (size_t i = 0; i < FORMS_REFUSALS; i++) {
        struct form_refusal *refusal = &forms->refused[i];
        if (!refusal->text || refusal->len != len || memcmp(refusal->text, text, len) != 0)
            continue;
        refusal->last_use = ++forms->num_uses;
        if (err) *err = refusal->err;
        return refusal->err.status;
    }
    return OK;
}

// With the lock: an empty place, else that of the least recently used refusal. If the texts take
// too much memory, that one is forgotten first.
static struct form_refusal *make_place(struct forms *forms, size_t len) {
    for (;;) {
        struct form_refusal *oldest = NULL, *empty = NULL;
        for (size_t i = 0; i < FORMS_REFUSALS; i++) {
            struct form_refusal *refusal = &forms->refused[i];
            if (!refusal->text) {
                empty = refusal;
            } else if (!oldest || refusal->last_use < oldest->last_use) {
                oldest = refusal;
            }
        }
        if (empty && forms->refusal_bytes + len <= FORMS_REFUSAL_BYTES_MAX) return empty;
        if (!oldest) return NULL;
        forms->refusal_bytes -= oldest->len;
        free(oldest->text);
        *oldest = (struct form_refusal){0};
    }
}

// With the lock.
static void remember(struct forms *forms, const char *text, size_t len, const struct err *err) {
    char *copy = malloc(len + 1);
    struct form_refusal *place = copy ? make_place(forms, len) : NULL;
    if (!place) { // then it is compiled again the next time
        free(copy);
        return;
    }
    memcpy(copy, text, len);
    *place = (struct form_refusal){copy, len, *err, ++forms->num_uses};
    forms->refusal_bytes += len;
}

static enum status compile(struct forms *forms, const char *text, size_t len,
                           struct automaton **out, struct err *err) {
    double start = clock_seconds();
    struct grammar *grammar;
    enum status status = outputs_read(&grammar, text, len, forms->vocabulary, err);
    if (!status) status = automaton_create(out, grammar, forms->vocabulary, NULL, err);
    durations_add(&forms->stats.compile, clock_seconds() - start);
    return status;
}

static enum status get(struct forms *forms, const char *text, size_t len, struct automaton **out,
                       struct err *err) {
    *out = NULL;
    pthread_mutex_lock(&forms->lock);
    enum status status = prepare(forms, err);
    if (!status) status = find_refusal(forms, text, len, err);
    if (!status) *out = find(forms, text, len);
    pthread_mutex_unlock(&forms->lock);
    if (*out) atomic_fetch_add(&forms->stats.num_kept, 1);
    if (status || *out) return status;
    struct err fault = {0};
    status = compile(forms, text, len, out, &fault);
    // It is the request that has a fault, or is too large; sent again it would be no better.
    if (status == ERR_FORMAT || status == ERR_CAPACITY) status = ERR_INVALID;
    if (status) err_prefix(&fault, status, "structured_outputs");
    if (status && err) *err = fault;
    pthread_mutex_lock(&forms->lock);
    if (status == ERR_INVALID || status == ERR_UNSUPPORTED) remember(forms, text, len, &fault);
    if (status) {
        pthread_mutex_unlock(&forms->lock);
        return status;
    }
    shrink(forms);
    struct automaton *other = find(forms, text, len); // compiled by another thread meanwhile
    if (other) {
        automaton_release(*out);
        *out = other;
    } else {
        keep(forms, text, len, *out);
    }
    pthread_mutex_unlock(&forms->lock);
    return OK;
}

enum status forms_get(struct forms *forms, const char *text, size_t len, struct automaton **out,
                      struct err *err) {
    atomic_fetch_add(&forms->stats.num_wanted, 1);
    enum status status = get(forms, text, len, out, err);
    if (status) atomic_fetch_add(&forms->stats.num_refused, 1);
    return status;
}
