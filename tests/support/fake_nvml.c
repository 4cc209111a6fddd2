/* A stand-in for NVIDIA's libnvidia-ml.so.1: it serves the calls of nvidia-ml-py that Trainyard makes from the text file
 * $TRAINYARD_FAKE_NVML, which it reads again at each call. fake_nvml.py has the format of the file. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15 };
enum { GPUS = 32, MIGS = 7, PROCESSES = 32, LINKS = 256 };

typedef struct { unsigned int pid; unsigned long long memory; unsigned int gi, ci; } Process;
typedef struct { char uuid[96], name[96]; unsigned long long total, used; Process process[PROCESSES]; int processes; } Unit;
typedef struct {
  Unit unit, mig[MIGS];
  char pci[32];
  unsigned int busy, memory_busy;
  int major, minor;
  int lost, is_mig, migs;
} Gpu;

static struct { char driver[80]; int cuda, gpus, links, failure; Gpu gpu[GPUS]; int link[LINKS][2]; } machine;

static void underscores_to_spaces(char *text) {
  for (; *text; text++)
    if (*text == '_') *text = ' ';
}

static void add_process(Unit *unit, unsigned int pid, unsigned long long memory) {
  if (unit->processes < PROCESSES) unit->process[unit->processes++] = (Process){pid, memory, -1, -1};
}

/* Read the file. What it says of `function` comes first: a call that hangs or fails. */
static int load(const char *function) {
  const char *path = getenv("TRAINYARD_FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512], name[96], uuid[96], pci[32];
  int index, other, code;
  unsigned int first, second;
  unsigned long long total, used;
  if (!file) return 999;
  memset(&machine, 0, sizeof machine);
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "hang %95s", name) == 1 && !strcmp(name, function)) {
      fclose(file);
      for (;;) pause();
    }
    if (sscanf(line, "fail %95s %d", name, &code) == 2 && !strcmp(name, function)) machine.failure = code;
    sscanf(line, "driver %79s", machine.driver);
    sscanf(line, "cuda %d", &machine.cuda);
    if (sscanf(line, "gpu %95s %95s %31s %llu", uuid, name, pci, &total) == 4 && machine.gpus < GPUS) {
      Gpu *gpu = &machine.gpu[machine.gpus++];
      strcpy(gpu->unit.uuid, uuid), strcpy(gpu->unit.name, name), strcpy(gpu->pci, pci);
      underscores_to_spaces(gpu->unit.name);
      gpu->unit.total = total;
    }
    if (sscanf(line, "link %d %d", &index, &other) == 2 && machine.links < LINKS)
      machine.link[machine.links][0] = index, machine.link[machine.links++][1] = other;
    if (sscanf(line, "%*s %d", &index) != 1 || index < 0 || index >= machine.gpus) continue;
    Gpu *gpu = &machine.gpu[index];
    if (sscanf(line, "lost %d", &index) == 1) gpu->lost = 1;
    if (sscanf(line, "mig-mode %d", &index) == 1) gpu->is_mig = 1;
    if (sscanf(line, "mig %d %95s %95s %llu", &index, uuid, name, &total) == 4 && gpu->migs < MIGS) {
      Unit *mig = &gpu->mig[gpu->migs++];
      strcpy(mig->uuid, uuid), strcpy(mig->name, name);
      underscores_to_spaces(mig->name);
      mig->total = total, gpu->is_mig = 1;
    }
    if (sscanf(line, "used %d %llu", &index, &used) == 2) gpu->unit.used = used;
    if (sscanf(line, "busy %d %u %u", &index, &first, &second) == 3) gpu->busy = first, gpu->memory_busy = second;
    if (sscanf(line, "capability %d %d %d", &index, &other, &code) == 3) gpu->major = other, gpu->minor = code;
    if (sscanf(line, "process %d %u %llu", &index, &first, &used) == 3) add_process(&gpu->unit, first, used);
  }
  fclose(file);
  return machine.failure;
}

/* A handle is the number of the GPU and, for a MIG device, of the device in it; both count from 1. */
static Gpu *gpu_of(void *handle) {
  size_t number = (size_t)handle % 1000;
  return number >= 1 && (int)number <= machine.gpus ? &machine.gpu[number - 1] : NULL;
}

static Unit *unit_of(void *handle) {
  size_t mig = (size_t)handle / 1000;
  Gpu *gpu = gpu_of(handle);
  if (!gpu || !mig) return gpu ? &gpu->unit : NULL;
  return (int)mig <= gpu->migs ? &gpu->mig[mig - 1] : NULL;
}

#define LOAD()                                   \
  do {                                           \
    int problem = load(__func__);                \
    if (problem) return problem;                 \
  } while (0)

#define LOAD_DEVICE(handle)                      \
  LOAD();                                        \
  Gpu *gpu = gpu_of(handle);                     \
  Unit *unit = unit_of(handle);                  \
  if (!gpu || !unit) return INVALID_ARGUMENT;    \
  if (gpu->lost) return GPU_IS_LOST

static int copy(char *target, const char *text, unsigned int size) {
  if (strlen(text) >= size) return INSUFFICIENT_SIZE;
  strcpy(target, text);
  return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; LOAD(); return SUCCESS; }
int nvmlInit_v2(void) { LOAD(); return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
  return code == GPU_IS_LOST ? "GPU is lost" : code == 18 ? "Driver/library version mismatch" : "Stand-in error";
}
int nvmlSystemGetDriverVersion(char *version, unsigned int size) { LOAD(); return copy(version, machine.driver, size); }
int nvmlSystemGetCudaDriverVersion(int *version) { LOAD(); *version = machine.cuda; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { LOAD(); *version = machine.cuda; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned int *count) { LOAD(); *count = machine.gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
  LOAD();
  if ((int)index >= machine.gpus) return INVALID_ARGUMENT;
  if (machine.gpu[index].lost) return GPU_IS_LOST;
  *handle = (void *)(size_t)(index + 1);
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  LOAD();
  for (int index = 0; index < machine.gpus; index++)
    if (!strcmp(machine.gpu[index].unit.uuid, uuid)) {
      *handle = (void *)(size_t)(index + 1);
      return SUCCESS;
    }
  return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned int size) { LOAD_DEVICE(handle); return copy(text, unit->uuid, size); }
int nvmlDeviceGetName(void *handle, char *text, unsigned int size) { LOAD_DEVICE(handle); return copy(text, unit->name, size); }
int nvmlDeviceGetIndex(void *handle, unsigned int *index) { LOAD_DEVICE(handle); *index = gpu - machine.gpu; return SUCCESS; }

typedef struct { unsigned long long total, available, used; } Memory;
int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
  LOAD_DEVICE(handle);
  *memory = (Memory){unit->total, unit->total - unit->used, unit->used};
  return SUCCESS;
}

typedef struct { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
  LOAD_DEVICE(handle);
  memset(pci, 0, sizeof *pci);
  return copy(pci->bus_id, gpu->pci, sizeof pci->bus_id);
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  LOAD_DEVICE(handle);
  if (!gpu->major) return NOT_SUPPORTED;
  *major = gpu->major, *minor = gpu->minor;
  return SUCCESS;
}

typedef struct { unsigned int gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
  LOAD_DEVICE(handle);
  if (gpu->is_mig) return NOT_SUPPORTED;
  *rates = (Utilization){gpu->busy, gpu->memory_busy};
  return SUCCESS;
}

static int processes(Unit *unit, unsigned int *count, Process *entries) {
  unsigned int room = *count;
  *count = unit->processes;
  if (room < *count) return INSUFFICIENT_SIZE;
  memcpy(entries, unit->process, *count * sizeof *entries);
  return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, Process *entries) {
  LOAD_DEVICE(handle);
  return processes(unit, count, entries);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, unsigned int *count, Process *entries) {
  LOAD_DEVICE(handle);
  (void)entries;
  *count = 0;
  return SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *handle, void *other, int capability, int *status) {
  LOAD_DEVICE(handle);
  int first = gpu - machine.gpu, second = gpu_of(other) - machine.gpu;
  (void)capability;
  *status = 5; /* not supported */
  for (int index = 0; index < machine.links; index++) {
    int *link = machine.link[index];
    if ((link[0] == first && link[1] == second) || (link[0] == second && link[1] == first)) *status = 0;
  }
  return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending) {
  LOAD_DEVICE(handle);
  *current = *pending = gpu->is_mig;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count) { LOAD_DEVICE(handle); *count = MIGS; return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **mig) {
  LOAD_DEVICE(handle);
  if ((int)index >= gpu->migs) return NOT_FOUND;
  *mig = (void *)((size_t)handle % 1000 + 1000 * (index + 1));
  return SUCCESS;
}
