package attribution

import "github.com/rdmatrace/rdmatrace/event"

// trapCuts are those in which a thread ran into our probe of ibv_req_notify_cq.
var trapCuts = []cut{
	{
		name:      "a thread that was woken arms its queue: the trap in that is ours, wherever the thread is interrupted",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 95,
		stepped: 16000, trap: 1000,
		tape: func(t *tape) {
			t.sleeps(13, 0, worker, amd64Read, tapeFD)
			t.wakes(22, 0, worker, event.InterruptDevice, 27, 21)
			t.runs(30, 0, worker, hog)
			t.armTrap(worker, 34, event.ArmStepped)
			t.preempted(40, 0, worker, hog)
			t.runs(60, 0, worker, hog)
			t.interrupt(65, 70, worker, event.InterruptDevice, 27)
		},
		want: "submit 10-12, unsplit 12-20, delivery 20-21, handler 21-22 irq 27, runqueue 22-30 hog (pid 900), late-poll 30-34, probe 34-40, " +
			"preempted 40-60 hog (pid 900), probe 60-65, irq-on-top 65-70 irq 27, probe 70-75, late-poll 75-95, reap 95-100",
	},
	{
		name:      "of a trap that began before done what is left is ours, and no more than up to the next one, or the poll",
		postBegin: 10, postEnd: 12, done: 20, reap: 60, pollBegin: 50,
		stepped: 16000, trap: 8000,
		tape: func(t *tape) {
			t.armTrap(worker, 14, event.ArmStepped)
			t.armTrap(worker, 35, 0)
			t.armTrap(worker, 39, event.ArmStepped)
		},
		want: "submit 10-12, unsplit 12-20, probe 20-30, late-poll 30-35, probe 35-50, reap 50-60",
	},
	{
		name:      "what interrupts a trap before done is no part of it",
		postBegin: 10, postEnd: 12, done: 24, reap: 60, pollBegin: 50,
		stepped: 16000, trap: 1000,
		tape: func(t *tape) {
			t.armTrap(worker, 14, event.ArmStepped)
			t.interrupt(16, 22, worker, event.InterruptDevice, 27)
		},
		want: "submit 10-12, unsplit 12-24, probe 24-36, late-poll 36-50, reap 50-60",
	},
	{
		name:      "what the thread runs before its post ends leaves a trap behind as well",
		postBegin: 30, postEnd: 45, done: 50, reap: 60, pollBegin: 58,
		stepped: 16000,
		tape:    func(t *tape) { t.armTrap(worker, 10, event.ArmStepped) },
		want:    "submit 30-45, unsplit 45-50, late-poll 50-58, reap 58-60",
	},
	{
		name:      "a trap that is over, or of another thread, or that cost nothing known, leaves nothing",
		postBegin: 10, postEnd: 12, done: 40, reap: 60, pollBegin: 50,
		stepped: 16000,
		tape: func(t *tape) {
			t.armTrap(worker, 14, event.ArmStepped)
			t.armTrap(helper, 41, event.ArmStepped)
			t.armTrap(worker, 42, 0)
		},
		want: "submit 10-12, unsplit 12-40, late-poll 40-50, reap 50-60",
	},
}
