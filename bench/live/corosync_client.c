/* One member of the live benchmark on Corosync's closed process groups: floods, or sends at a rate, in agreed order.
 * Arguments: size, rate (0: flood), seconds, thin (of how many latencies one is told), members. */

#include <corosync/cpg.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static uint64_t delivered;
static size_t present;
static int timed;
static uint32_t *latencies_us;
static size_t latencies, latencies_max;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double cpu_s(struct rusage *used)
{
	getrusage(RUSAGE_SELF, used);
	return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
	       (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
}

static void on_message(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
                       size_t size)
{
	(void)handle, (void)group, (void)node, (void)pid, (void)size;
	delivered++;
	if (timed && latencies < latencies_max) {
		int64_t sent;
		memcpy(&sent, message, sizeof sent);
		latencies_us[latencies++] = (uint32_t)((now_ns() - sent) / 1000);
	}
}

static void on_change(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members,
                      size_t count, const struct cpg_address *left, size_t left_count,
                      const struct cpg_address *joined, size_t joined_count)
{
	(void)handle, (void)group, (void)members, (void)left, (void)left_count, (void)joined, (void)joined_count;
	present = count;
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	size_t size = strtoul(argv[1], NULL, 10), members = strtoul(argv[5], NULL, 10);
	long rate = atol(argv[2]), thin = atol(argv[4]);
	double seconds = atof(argv[3]);
	cpg_callbacks_t callbacks = {.cpg_deliver_fn = on_message, .cpg_confchg_fn = on_change};
	struct cpg_name group = {.length = 5, .value = "bench"};
	cpg_handle_t handle;
	struct pollfd readable = {.events = POLLIN};
	char *payload = calloc(1, size), line[64];
	struct iovec message = {.iov_base = payload, .iov_len = size};
	struct rusage used;

	timed = rate > 0;
	latencies_max = timed ? (size_t)((double)rate * seconds * (double)members * 2) : 0;
	latencies_us = calloc(latencies_max + 1, sizeof *latencies_us);
	for (int tries = 0; cpg_initialize(&handle, &callbacks) != CS_OK; tries++) { /* the daemon may be starting */
		if (tries == 300)
			return 1;
		poll(NULL, 0, 100);
	}
	if (cpg_fd_get(handle, &readable.fd) != CS_OK)
		return 1;
	while (cpg_join(handle, &group) == CS_ERR_TRY_AGAIN)
		poll(NULL, 0, 50);
	while (present < members) {
		poll(&readable, 1, 100);
		cpg_dispatch(handle, CS_DISPATCH_ALL);
	}
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	int64_t start = (int64_t)(atof(line) * 1e9), end = start + (int64_t)(seconds * 1e9), sent = 0, now;
	while ((now = now_ns()) < start)
		poll(NULL, 0, (int)((start - now) / 1000000) + 1);
	double cpu = cpu_s(&used);
	uint64_t before = delivered;
	while ((now = now_ns()) < end) {
		int64_t due = rate ? (int64_t)((double)(now - start) * (double)rate / 1e9) : sent + 64;
		int full = 0;
		while (sent < due && !full) {
			int64_t stamp = timed ? now_ns() : 0;
			memcpy(payload, &stamp, sizeof stamp);
			if (cpg_mcast_joined(handle, CPG_TYPE_AGREED, &message, 1) == CS_OK)
				sent++;
			else
				full = 1; /* try again when something was delivered */
		}
		if (full || rate)
			poll(&readable, 1, 1);
		cpg_dispatch(handle, CS_DISPATCH_ALL);
	}
	cpu = cpu_s(&used) - cpu;
	printf("{\"cpu_s\": %f, \"delivered\": %" PRIu64 ", \"sent\": %" PRId64 ", \"rss_kib\": %ld, \"latencies_us\": [", cpu,
	       delivered - before, sent, used.ru_maxrss);
	for (size_t index = 0; index < latencies; index += (size_t)thin)
		printf("%s%" PRIu32, index ? ", " : "", latencies_us[index]);
	puts("]}");
	fflush(stdout);
	fgets(line, sizeof line, stdin); /* until all are done */
	return 0;
}
