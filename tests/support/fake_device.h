/* A device for tests: the CPU backend behind a stream that runs nothing until somebody waits, with
 * events, recorded graphs and faults on demand. Linked into a test it takes the place of device
 * "cuda", so that what only a GPU makes the engine do runs on a machine without one.
 *
 * The laziness is the point: a copy reads host memory as late as a real device ever may, so memory
 * that is changed or given back too early shows. A graph is run with the pointers and sizes that it
 * was recorded with; attention takes the block table stride from its plan and the lengths from the
 * step's arrays, as backend.h wants it. One device at a time; dense models only. */
#ifndef SUPPORT_FAKE_DEVICE_H
#define SUPPORT_FAKE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

enum fake_fault {
    FAKE_FAULT_NONE,
    // The device breaks, for good: seen by the next wait.
    FAKE_FAULT_RUN, // at a command (an op, a copy or a graph) that it runs
    FAKE_FAULT_WAIT, // at a wait for an event
    // One call fails, the device is well.
    FAKE_FAULT_GRAPH_BEGIN,
    FAKE_FAULT_GRAPH_END,
    FAKE_FAULT_CREATE, // device or host memory, or an event
};

struct fake_device_counts {
    long live; // allocations, events and graphs that nobody has given back
    uint32_t num_graphs; // recorded, those that replaced others too
    size_t taken_bytes; // of the memory
    uint32_t num_graph_launches;
    uint32_t num_waits;
    uint32_t num_given_back_early; // memory given back with commands still to run
};

// Everything anew; without a fault until fake_device_fail_at.
void fake_device_reset(void);
// The n-th (1: the next) occasion of that kind fails.
void fake_device_fail_at(enum fake_fault fault, uint32_t n);
int fake_device_has_failed(void); // the fault has happened
// What the device has in all; allocations, matrices and the KV cache take their bytes of it.
void fake_device_set_memory(size_t bytes);
void fake_device_set_graph_bytes(size_t bytes); // what a recorded step takes; 0 at first
void fake_device_set_timing(void); // linears say that they were timed
struct fake_device_counts fake_device_counts(void);

#endif
