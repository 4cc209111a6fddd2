/** How busy the GPUs of the replicas of a job were over time, for the lanes of the timeline. */

/** @typedef {{replica: string, time: number[], value: (number|null)[]}} Use percent, by Unix time */

const INTERVAL = 5000, POINTS = 500;

/**
 * Returns a function that returns what is known now, and reads it again every few seconds, and once after the job's end.
 * @param {import('./session.js').Session} session @param {() => void} onNews
 */
export function createDeviceUse(session, onNews) {
  let version = '', readAt = 0, isReading = false;
  /** @type {Map<string, Use>} by replica */
  let known = new Map();

  async function read(/** @type {string} */ uid, /** @type {string[]} */ replicas, /** @type {string} */ wanted) {
    const query = `names=gpu_utilization&points=${POINTS}&replicas=${encodeURIComponent(replicas.join())}`;
    isReading = true;
    try {
      const { series } = await (await session.request(`jobs/${uid}/series?${query}`)).json();
      if (wanted === version) {
        known = new Map(series.map((/** @type {Use} */ use) => [use.replica, use]));
        onNews();
      }
    } catch {
      // The timeline is drawn without it.
    }
    isReading = false;
  }

  return (/** @type {string} */ uid, /** @type {boolean} */ hasEnded, /** @type {string[]} */ replicas) => {
    const next = `${uid} ${hasEnded} ${replicas.join()}`;
    if (next !== version) {
      if (!next.startsWith(`${uid} `) || !replicas.length) known = new Map();
      version = next;
      readAt = 0;
    }
    const isDue = !(hasEnded && readAt) && Date.now() - readAt >= INTERVAL;
    if (replicas.length && isDue && !isReading) {
      readAt = Date.now();
      void read(uid, replicas, next);
    }
    return known;
  };
}

/** The value at a time; null where none is known. */
export function useAt(/** @type {Use|undefined} */ use, /** @type {number} */ time) {
  const index = use ? use.time.findLastIndex((at) => at <= time) : -1;
  return index < 0 ? null : (use?.value[index] ?? null);
}
