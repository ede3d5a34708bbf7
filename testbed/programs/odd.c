/*
 * oracle-odd: a requester whose habits probes could harm. It writes a pattern,
 * round by round, and compares what has arrived. SIGTERM ends it: "right" on
 * stdout where all of it was.
 *
 *   kind=plain
 *        seccomp    strict: a system call that it does not need kills it
 *        contexts   posts on one stack and reaps on another, by swapcontext
 *        threads    each of four threads at a time makes ten rounds and ends
 *        maps       another thread maps and unmaps memory as fast as it can
 *        userfault  has memory that nobody may touch: a fault in it is told
 *        forks      children come and go, one of two by vfork and exec (posix_spawn)
 *   size=BYTES     of a request
 *   pause=NS       between rounds
 *   count=N        plain: it ends by itself after so many rounds
 *   trap=0|1       seccomp: does the filter know the system call of return probes?
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "job.h"

#define THREADS 4
#define UNABLE 77	/* exit status: this kernel lacks what the habit needs */

static struct rdma rdma;
static struct link links[THREADS];
static uint64_t pause_ns, count, rounds[THREADS];
static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static uint64_t word(uint64_t round, uint32_t i)
{
	return (round << 20 ^ i) * 0x9e3779b97f4a7c15ull;
}

static void post(int n)
{
	struct link *l = &links[n];
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	uint64_t *source = (uint64_t *)l->buf;

	rounds[n]++;
	for (uint32_t i = 0; i < l->size / 8; i++)
		source[i] = word(rounds[n], i);
	link_request(l, &wr, &sge, IBV_WR_RDMA_WRITE, l->size, rounds[n]);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(l->qp, &wr, &bad));
}

static bool reap(int n)
{
	struct link *l = &links[n];
	uint64_t *target = (uint64_t *)(l->buf + l->size);
	struct ibv_wc wc;
	int got = ibv_poll_cq(l->cq, 1, &wc);

	CHECK(got >= 0);
	if (!got)
		return false;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == rounds[n]);
	for (uint32_t i = 0; i < l->size / 8; i++)
		CHECK(target[i] == word(rounds[n], i));
	return true;
}

static void make_round(int n)
{
	post(n);
	while (!reap(n))
		;
	if (pause_ns)
		sleep_ns(pause_ns);
}

static void run_plain(void)
{
	while (!stop && (!count || rounds[0] < count))
		make_round(0);
}

/* What a program of this kind may call once it works; anything else kills it. */
static void run_seccomp(void)
{
	static const int allowed[] = { SYS_write, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime,
				       SYS_futex, SYS_sched_yield, SYS_rt_sigreturn, SYS_exit_group };
	struct sock_filter code[2 * sizeof(allowed) / sizeof(*allowed) + 8];
	struct sock_fprog program = { .filter = code };
	int n = 0;

#define ALLOW(nr) do { \
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1); \
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); \
} while (0)
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		ALLOW(allowed[i]);
	if (number("trap", 0))
		ALLOW(335);	/* uretprobe, of x86-64 */
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	program.len = n;
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	run_plain();
}

static ucontext_t main_context, poster, reaper;

static void posts(void)
{
	for (;;) {
		post(0);
		CHECK(!swapcontext(&poster, &reaper));
	}
}

static void reaps(void)
{
	for (;;) {
		while (!reap(0))
			;
		CHECK(!swapcontext(&reaper, stop ? &main_context : &poster));
	}
}

static void context_make(ucontext_t *c, void (*run)(void))
{
	enum { STACK = 256 << 10 };

	CHECK(!getcontext(c));
	c->uc_stack.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c->uc_stack.ss_size = STACK;
	CHECK(c->uc_stack.ss_sp != MAP_FAILED);
	makecontext(c, run, 0);
}

static void run_contexts(void)
{
	context_make(&poster, posts);
	context_make(&reaper, reaps);
	CHECK(!swapcontext(&main_context, &poster));
}

static void *ten_rounds(void *arg)
{
	for (int i = 0; i < 10; i++)
		make_round((intptr_t)arg);
	return NULL;
}

static void run_threads(void)
{
	while (!stop) {
		pthread_t t[THREADS];

		for (intptr_t i = 0; i < THREADS; i++)
			CHECK(!pthread_create(&t[i], NULL, ten_rounds, (void *)i));
		for (int i = 0; i < THREADS; i++)
			CHECK(!pthread_join(t[i], NULL));
	}
}

static void *map_hard(void *arg)
{
	enum { SIZE = 1 << 20 };

	(void)arg;
	while (!stop) {
		char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(p != MAP_FAILED);
		p[0] = p[SIZE / 2] = 1;
		CHECK(!mprotect(p, 4096, PROT_READ));
		CHECK(!munmap(p, SIZE));
	}
	return NULL;
}

static void run_maps(void)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, map_hard, NULL));
	run_plain();
	CHECK(!pthread_join(t, NULL));
}

/* A fault in memory that this program itself never touches is somebody else's. */
static void *tell_faults(void *arg)
{
	struct uffd_msg m;

	while (read(*(int *)arg, &m, sizeof(m)) == sizeof(m)) {
		fprintf(stderr, "somebody touched %#llx\n", (unsigned long long)m.arg.pagefault.address);
		exit(1);
	}
	return NULL;
}

static void run_userfault(void)
{
	enum { SIZE = 64 << 20 };
	static int fd;
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register r = { .range.len = SIZE, .mode = UFFDIO_REGISTER_MODE_MISSING };
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;

	CHECK(p != MAP_FAILED);
	fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
		perror("userfaultfd");
		exit(UNABLE);
	}
	CHECK(fd >= 0 && !ioctl(fd, UFFDIO_API, &api));
	r.range.start = (uintptr_t)p;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &r));
	CHECK(!pthread_create(&t, NULL, tell_faults, &fd));
	run_plain();
}

static void *fork_hard(void *arg)
{
	(void)arg;
	for (int i = 0; !stop; i++) {
		static char *argv[] = { "true", NULL };
		pid_t child;

		if (i % 2) {
			child = fork();
			CHECK(child >= 0);
			if (!child)
				_exit(0);
		} else {
			CHECK(!posix_spawn(&child, "/bin/true", NULL, NULL, argv, environ));
		}
		while (waitpid(child, NULL, 0) != child)
			CHECK(errno == EINTR); /* SIGTERM may come to this thread */
	}
	return NULL;
}

static void run_forks(void)
{
	pthread_t t;

	CHECK(!pthread_create(&t, NULL, fork_hard, NULL));
	run_plain();
	CHECK(!pthread_join(t, NULL));
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = {
	{ "plain", run_plain },
	{ "seccomp", run_seccomp },
	{ "contexts", run_contexts },
	{ "threads", run_threads },
	{ "maps", run_maps },
	{ "userfault", run_userfault },
	{ "forks", run_forks },
};

int main(int argc, char **argv)
{
	struct sigaction on = { .sa_handler = on_term };
	void (*run)(void) = NULL;
	const char *kind;
	uint32_t size;

	options(argc, argv);
	kind = option("kind", "plain");
	size = number("size", 4096);
	pause_ns = number("pause", 0);
	count = number("count", 0);
	number("trap", 0);
	options_done();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (!strcmp(kind, kinds[i].name))
			run = kinds[i].run;
	}
	CHECK(run && size % 8 == 0);

	CHECK(!ibv_fork_init());
	rdma_open(&rdma);
	for (int i = 0; i < THREADS; i++)
		link_open(&rdma, &links[i], NULL, NULL, 16, size);
	CHECK(!sigaction(SIGTERM, &on, NULL));
	running();
	run();
	puts("right");
	CHECK(!fflush(stdout));
	return 0;
}
