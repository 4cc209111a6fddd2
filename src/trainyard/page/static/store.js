/** What the server has sent, by job. */

/**
 * @typedef {{uid: string, namespace: string, kind: string, name: string, state: string, running: number,
 *   replicas: number, restarts: number, created: number|null, started: number|null, ended: number|null,
 *   message: string, live: boolean}} JobRow
 * @typedef {{uid: string, step: number|null, loss: number|string|null, shape: string, why: string}} Progress
 *   `shape`: of the loss so far (sparkline.js); `why`: which replicas lag
 * @typedef {{level: string, what: string, where: string, evidence: string[], fix: string}} Finding
 * @typedef {{phase: string, start: number, end: number|null, exitCode: number|null, reason: string}} Segment
 * @typedef {{replica: string, role: string, index: string, attempt: number, pod: string, uid: string, node: string,
 *   segments: Segment[]}} Lane
 * @typedef {Record<string, any[]> & {replica: string[], role: string[], state: string[]}} Ranks by column
 * @typedef {{time: number|null, count: number, type: string, reason: string, object: string, source: string,
 *   message: string}} EventView
 * @typedef {{job?: any, findings?: Finding[], timeline?: Lane[], ranks?: Ranks, events?: EventView[],
 *   actions?: Actions, forbidden?: string[], tensorboard?: {pod: string, message: string}|null}} JobData `forbidden`: what
 *   the person may not read of it
 * @typedef {{generation: number, verbs: string[],
 *   scale: {role: string, replicas: number, least: number|null, most: number|null}|null}} Actions what can be done
 */

/** Values by column as an object. @returns {any} */
const asObject = (/** @type {string[]} */ columns, /** @type {any[]} */ values) =>
  Object.fromEntries(columns.map((column, index) => [column, values[index]]));

/** Events: `hello`, `jobs`, `progress`, `devices`, `job` (detail: its uid), `gone` (detail: its uid), `log` (detail: the frame). */
export class Store extends EventTarget {
  /** @type {any} */
  hello = null;
  /** @type {Map<string, JobRow>} */
  jobs = new Map();
  /** @type {Map<string, Progress>} of the jobs of which something is known */
  progress = new Map();
  /** Whether all jobs have come once. */
  complete = false;
  /** @type {Map<string, JobData>} */
  data = new Map();
  /** @type {Map<string, JobRow>|null} a snapshot that replaces `jobs` when it is whole */
  #snapshot = null;
  /** @type {string[]} */
  #columns = [];

  /** @param {any} frame */
  apply(frame) {
    if (frame.type === 'hello') {
      this.hello = frame;
      this.dispatchEvent(new Event('hello'));
    } else if (frame.type === 'jobs') {
      this.#applyJobs(frame);
    } else if (frame.type === 'devices') {
      this.dispatchEvent(new CustomEvent('devices', { detail: frame.lines }));
    } else if (frame.type === 'progress') {
      for (const values of frame.rows) this.progress.set(values[0], asObject(frame.columns, values));
      this.dispatchEvent(new Event('progress'));
    } else if (frame.type === 'job' || frame.type === 'ranks' || frame.type === 'events') {
      this.add(
        frame.uid,
        frame.type === 'ranks'
          ? { ranks: frame.columns }
          : frame.type === 'events'
            ? { events: frame.events }
            : {
                job: frame.job,
                findings: frame.findings,
                timeline: frame.timeline,
                forbidden: frame.forbidden,
                tensorboard: frame.tensorboard,
              },
      );
    } else if (frame.type === 'actions') {
      this.add(frame.uid, { actions: frame.actions });
    } else if (frame.type === 'log') {
      this.dispatchEvent(new CustomEvent('log', { detail: frame }));
    } else if (frame.type === 'gone') {
      this.dispatchEvent(new CustomEvent('gone', { detail: frame.uid }));
    }
  }

  /** Adds what is known about a job. */
  add(/** @type {string} */ uid, /** @type {JobData} */ data) {
    this.data.set(uid, { ...this.data.get(uid), ...data });
    this.dispatchEvent(new CustomEvent('job', { detail: uid }));
  }

  /** @param {any} frame */
  #applyJobs(frame) {
    if (frame.columns) this.#columns = frame.columns;
    // The first snapshot is shown as it comes; a later one replaces the rows at once: none disappears meanwhile.
    if (frame.reset) this.#snapshot = this.jobs.size ? new Map() : this.jobs;
    const jobs = this.#snapshot ?? this.jobs;
    for (const values of frame.rows ?? []) {
      const row = asObject(this.#columns, values);
      for (const column of frame.repeated ?? []) row[column] = frame.texts[row[column]];
      for (const column of frame.relative ?? []) if (row[column] !== null) row[column] += row.created ?? 0;
      jobs.set(row.uid, row);
    }
    for (const uid of frame.gone ?? []) jobs.delete(uid);
    if (!frame.more && this.#snapshot) {
      this.jobs = this.#snapshot;
      this.#snapshot = null;
      this.complete = true;
    }
    this.dispatchEvent(new Event('jobs'));
  }

  /**
   * The job of an address. Without a run's uid it is the newest of that name; a live one precedes those of the history.
   * @param {{namespace: string, kind: string, name: string, run: string}} address
   * @returns {JobRow|undefined}
   */
  find({ namespace, kind, name, run }) {
    /** @type {JobRow|undefined} */
    let best;
    for (const row of this.jobs.values()) {
      if (row.name !== name || row.namespace !== namespace) continue;
      if (run ? !row.uid.startsWith(run) : row.kind.toLowerCase() !== kind.toLowerCase()) continue;
      const preference = !best
        ? 1
        : Number(row.kind === kind) - Number(best.kind === kind) ||
          Number(row.live) - Number(best.live) ||
          (row.created ?? 0) - (best.created ?? 0);
      if (preference > 0) best = row;
    }
    return best;
  }
}
