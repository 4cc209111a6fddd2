/** What a view gets, with a server that answers as `answers` says, and a list of jobs. */

import { nextFrame, settled } from './page.mjs';
import { Store } from '../../../src/trainyard/page/static/store.js';

export const job = (fields) => ({
  uid: '0123456789', namespace: 'default', kind: 'TFJob', name: 'mnist', state: 'Running', running: 1, replicas: 2, restarts: 0,
  created: 1000, started: 1100, ended: null, message: '', live: true, ...fields,
});

/** The frame of these jobs. */
export function jobsFrame(rows, fields) {
  const columns = Object.keys(job({}));
  return { type: 'jobs', columns, rows: rows.map((row) => columns.map((column) => row[column])), reset: true, more: false, ...fields };
}

/**
 * A context of the views. `requests`: what was asked of the server, which answers with what `answer(path)` returns.
 * `addresses`: where the page went.
 */
export function createContext(answer = () => ({})) {
  const requests = [], addresses = [];
  const session = {
    async request(path) {
      requests.push(path);
      const value = await answer(path);
      return new Response(typeof value === 'string' ? value : JSON.stringify(value));
    },
    post: async (path, value) => session.request(`${path} ${JSON.stringify(value)}`),
    download: async () => {},
  };
  const live = Object.assign(new EventTarget(), { status: 'live', now: () => 2000 });
  const navigate = (address) => void addresses.push(address);
  return { session, store: new Store(), live, navigate, topicsChanged: () => {}, requests, addresses };
}

/** Draws what has changed, and waits for what was asked of the server. */
export async function drawn() {
  for (let times = 0; times < 3; times++) {
    nextFrame();
    await settled();
  }
}
