// Recording the ops of a step as a CUDA graph. A backend_graph is a cudaGraphExec_t.
#include "backend/cuda/cuda_ops.h"

enum status cuda_graph_begin(struct backend *backend, struct err *err) {
    enum status status = OK;
    CU(cudaStreamBeginCapture(cuda_enter(backend)->stream, cudaStreamCaptureModeThreadLocal));
    return OK;
fail:
    return status;
}

// Updates the executable with the pointers and sizes of a new recording of the same kernels. If the
// kernels differ, destroys it and returns NULL.
static cudaGraphExec_t update_graph(cudaGraphExec_t executable, cudaGraph_t graph) {
    cudaGraphExecUpdateResultInfo info;
    if (!executable || !cudaGraphExecUpdate(executable, graph, &info)) return executable;
    (void)cudaGetLastError(); // not a failure: the graph will be instantiated again
    cudaGraphExecDestroy(executable);
    return NULL;
}

enum status cuda_graph_end(struct backend *backend, struct backend_graph **out, struct err *err) {
    enum status status = OK;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = (cudaGraphExec_t)*out;
    *out = NULL;
    CU(cudaStreamEndCapture(cuda_backend_of(backend)->stream, &graph));
    status = cuda_report(cuda_backend_of(backend), err); // what was refused is missing in it
    if (status) goto fail;
    executable = update_graph(executable, graph);
    if (!executable) CU(cudaGraphInstantiate(&executable, graph, 0));
    CU(cudaGraphUpload(executable, cuda_backend_of(backend)->stream));
    cudaGraphDestroy(graph);
    *out = (struct backend_graph *)executable;
    return OK;
fail:
    if (executable) cudaGraphExecDestroy(executable);
    if (graph) cudaGraphDestroy(graph);
    return status;
}

void cuda_graph_launch(struct backend *backend, struct backend_graph *graph) {
    struct cuda_backend *cuda = cuda_backend_of(backend);
    cuda_check(cuda, cudaGraphLaunch((cudaGraphExec_t)graph, cuda->stream), "launching a graph");
}

void cuda_graph_destroy(struct backend *backend, struct backend_graph *graph) {
    (void)backend;
    if (graph) cudaGraphExecDestroy((cudaGraphExec_t)graph);
}
