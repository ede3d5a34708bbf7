/* Parameters: one table names, checks, reads and prints them all. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/mlx5dv.h>
#include "opcode.h"
#include "params.h"

struct params param = {
	.lat = 2000,
	.ack = 1000,
	.byte_ps = 80,                  /* 12.5 GB/s, the 100 Gb/s that sysfs states */
	.slow_ns = 50000,
	.slow_op = SLOW_ANY,
	.burst = 1,
	.rnr = 20000,
	.poll_ns = 20000,
	.spin_ns = 30000,
	.busy_ns = 300000,
	.cpu = -1,
	.rt = 10,
	.clock_hz = 1000000000,
	.scatter = 1,
	.log_mb = 1024,
	.seed = 1,
};

#define SECOND    1000000000ll
#define DAY       (86400 * SECOND)
#define CENTURY   (36525 * DAY)

/* A word's place is its value. */
static const char *const stages[] = { "wire", "cqe", "event", "rnr", "retransmit", "stamp", "congestion", NULL };
static const char *const polls[] = { "sleep", "spin", NULL };
static const char *const links[] = { "ib", "eth", NULL };
static const char *const formats[] = { "free", "real", NULL };

static const struct param_desc {
	const char *key;
	size_t at;
	int64_t min, max;
	const char *const *words;       /* it is one of these, not a number */
	bool start_only;
} table[] = {
#define AT(field) offsetof(struct params, field)
	{ "LAT_NS", AT(lat), 0, DAY, NULL, false },
	{ "ACK_NS", AT(ack), 0, DAY, NULL, false },
	{ "BYTE_PS", AT(byte_ps), 0, SECOND, NULL, false },
	{ "SLOW_EVERY", AT(slow_every), 0, INT_MAX, NULL, false },
	{ "SLOW_NS", AT(slow_ns), 0, DAY, NULL, false },
	{ "SLOW_STAGE", AT(slow_stage), 0, 0, stages, false },
	{ "BURST", AT(burst), 1, INT_MAX, NULL, false },
	{ "ERR_EVERY", AT(err_every), 0, INT_MAX, NULL, false },
	{ "RNR_NS", AT(rnr), 1000, DAY, NULL, false },
	{ "POLL", AT(poll), 0, 0, polls, false },
	{ "POLL_NS", AT(poll_ns), 0, SECOND, NULL, false },
	{ "SPIN_NS", AT(spin_ns), 0, SECOND, NULL, false },
	{ "LINGER_NS", AT(linger_ns), 0, DAY, NULL, false },
	{ "BUSY_NS", AT(busy_ns), 0, DAY, NULL, false },
	{ "CPU", AT(cpu), -1, 4095, NULL, true },
	{ "RT", AT(rt), 0, 99, NULL, true },
	{ "CLOCK_OFFSET_NS", AT(clock_offset), -CENTURY, CENTURY, NULL, false },
	{ "CLOCK_DRIFT_PPB", AT(clock_drift), -100000000, 100000000, NULL, true },
	{ "CLOCK_HZ", AT(clock_hz), 1000000, 10 * SECOND, NULL, true },
	{ "CLOCK_FORMAT", AT(clock_format), 0, 0, formats, true },
	{ "CLOCK_STEP_AT_NS", AT(clock_step_at), 0, CENTURY, NULL, true },
	{ "CLOCK_STEP_NS", AT(clock_step), -CENTURY, CENTURY, NULL, true },
	{ "LINK", AT(link), 0, 0, links, true },
	{ "SCATTER_CQE", AT(scatter), 0, 1, NULL, false },
	{ "LOG_MB", AT(log_mb), 0, INT_MAX, NULL, false },
	{ "SEED", AT(seed), 0, INT64_MAX, NULL, false },
#undef AT
};

#define NPARAMS (sizeof(table) / sizeof(*table))

static char complaint[320];

#define WRONG(...) (snprintf(complaint, sizeof(complaint), __VA_ARGS__), complaint)

static int64_t *field(const struct params *p, const struct param_desc *d)
{
	return (int64_t *)((char *)p + d->at);
}

static bool parse_int(const char *s, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(s, &end, 10);
	return end != s && !*end && !errno && *s != ' ' && *s != '+';
}

static const char *set_word(struct params *p, const struct param_desc *d, const char *value)
{
	char list[128] = "";

	for (int i = 0; d->words[i]; i++) {
		if (!strcmp(value, d->words[i])) {
			*field(p, d) = i;
			return NULL;
		}
		strcat(strcat(list, i ? ", " : ""), d->words[i]);
	}
	return WRONG("%s=%.64s: expected one of %s", d->key, value, list);
}

static const char *set_number(struct params *p, const struct param_desc *d, const char *value)
{
	int64_t n;

	if (!parse_int(value, &n))
		return WRONG("%s=%.64s: expected a whole number", d->key, value);
	if (n < d->min || n > d->max)
		return WRONG("%s=%.64s: expected %ld to %ld", d->key, value, (long)d->min,
			     (long)d->max);
	*field(p, d) = n;
	return NULL;
}

static const char *set_jitter(struct params *p, const char *value)
{
	int64_t ns = 0;

	if (!strcmp(value, "none")) {
		p->jitter = JITTER_NONE;
	} else if (!strncmp(value, "uniform:", 8) && parse_int(value + 8, &ns) && ns >= 0 &&
		   ns <= DAY) {
		p->jitter = JITTER_UNIFORM;
	} else if (!strncmp(value, "exp:", 4) && parse_int(value + 4, &ns) && ns >= 0 &&
		   ns <= DAY) {
		p->jitter = JITTER_EXP;
	} else {
		return WRONG("JITTER=%.64s: expected none, uniform:NS or exp:NS", value);
	}
	p->jitter_ns = ns;
	return NULL;
}

static const char *set_slow_op(struct params *p, const char *value)
{
	int op = opcode_of(value);

	if (op < 0 && strcmp(value, "any"))
		return WRONG("SLOW_OP=%.64s: expected any or an opcode as in the truth log "
			     "(READ, WRITE, SEND, ...)", value);
	p->slow_op = op < 0 ? SLOW_ANY : op;
	return NULL;
}

const char *param_set(struct params *p, const char *key, const char *value,
		      enum param_phase when)
{
	if (!strcmp(key, "JITTER"))
		return set_jitter(p, value);
	if (!strcmp(key, "SLOW_OP"))
		return set_slow_op(p, value);
	for (size_t i = 0; i < NPARAMS; i++) {
		const struct param_desc *d = &table[i];
		int64_t before = *field(p, d);
		const char *err;

		if (strcmp(key, d->key))
			continue;
		err = d->words ? set_word(p, d, value) : set_number(p, d, value);
		if (err)
			return err;
		if (when == WHILE_RUNNING && d->start_only && *field(p, d) != before) {
			*field(p, d) = before;
			return WRONG("%s: can be given at the start only", d->key);
		}
		/* A xorshift generator never leaves zero. */
		if (!strcmp(key, "SEED") && !p->seed)
			p->seed = 1;
		if (!strcmp(key, "CPU") && p->cpu >= sysconf(_SC_NPROCESSORS_CONF))
			return WRONG("CPU=%.64s: this machine has %ld", value,
				     sysconf(_SC_NPROCESSORS_CONF));
		return NULL;
	}
	return WRONG("%.64s: no such parameter (README.md lists them)", key);
}

const char *param_set_pair(struct params *p, const char *pair, enum param_phase when)
{
	const char *eq = strchr(pair, '=');
	char key[64];

	if (!eq || eq == pair || eq - pair >= (long)sizeof(key))
		return WRONG("%.64s: expected KEY=VALUE", pair);
	memcpy(key, pair, eq - pair);
	key[eq - pair] = 0;
	return param_set(p, key, eq + 1, when);
}

static const char *from_environment(struct params *p, enum param_phase when)
{
	static const char *const others[] = { "JITTER", "SLOW_OP" };
	const char *err = NULL;

	for (size_t i = 0; i < NPARAMS + 2 && !err; i++) {
		const char *key = i < NPARAMS ? table[i].key : others[i - NPARAMS];
		char name[64];
		const char *v;

		snprintf(name, sizeof(name), "SOFTMLX5_%s", key);
		v = getenv(name);
		if (v)
			err = param_set(p, key, v, when);
	}
	return err;
}

const char *params_load(struct params *p, const char *dir, enum param_phase when)
{
	struct params next = *p;
	const char *err = from_environment(&next, when);
	char path[PATH_MAX], line[256];
	FILE *f = NULL;

	if (dir) {
		snprintf(path, sizeof(path), "%s/params", dir);
		f = fopen(path, "re");
	}
	while (f && !err && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\r\n")] = 0;
		if (*line && *line != '#')
			err = param_set_pair(&next, line, when);
	}
	if (f)
		fclose(f);
	if (!err)
		*p = next;
	return err;
}

void params_print(FILE *f, const struct params *p)
{
	static const char *const jitters[] = { "none", "uniform:", "exp:" };

	for (size_t i = 0; i < NPARAMS; i++) {
		int64_t n = *field(p, &table[i]);

		if (table[i].words)
			fprintf(f, "%s=%s\n", table[i].key, table[i].words[n]);
		else
			fprintf(f, "%s=%ld\n", table[i].key, (long)n);
	}
	fprintf(f, "JITTER=%s", jitters[p->jitter]);
	if (p->jitter != JITTER_NONE)
		fprintf(f, "%ld", (long)p->jitter_ns);
	fprintf(f, "\nSLOW_OP=%s\n", p->slow_op == SLOW_ANY ? "any" : opcode_name(p->slow_op));
}
