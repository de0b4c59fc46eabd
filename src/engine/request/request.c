#include "engine/request/request.h"

#include <stdlib.h>

static struct request *new_request(void) {
    struct request *request = calloc(1, sizeof *request);
    if (request) request->first = request;
    return request;
}

enum status request_create(struct request **out, struct err *err) {
    struct request *request = new_request();
    *out = request;
    if (!request) return err_nomem(err, "request");
    request->num_outputs = request->num_unended = request->num_held = 1;
    return OK;
}

enum status request_create_output(struct request *first, struct request **out, struct err *err) {
    struct request *last = first, *request = new_request();
    *out = request;
    if (!request) return err_nomem(err, "request");
    while (last->next_output) last = last->next_output;
    last->next_output = request;
    request->first = first;
    request->index = first->num_outputs++;
    first->num_unended++;
    first->num_held++;
    return OK;
}

static void destroy_one(struct request *request) {
    sequence_destroy(request->seq);
    sampling_fini(&request->sampling);
    output_text_fini(&request->text);
    draft_index_fini(&request->draft_index);
    buf_fini(&request->event_text);
    buf_fini(&request->echo);
    free(request->prompt_logprobs);
    free(request->pooled.vector);
    free(request);
}

void request_destroy(struct request *first) {
    struct request *request = first ? first->next_output : NULL;
    while (request) { // output 0 goes last: the others borrow from it
        struct request *next = request->next_output;
        destroy_one(request);
        request = next;
    }
    if (first) destroy_one(first);
}
