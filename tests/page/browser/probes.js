/* What tests ask the page. These are put before each expression that a test evaluates. */

/** Whether a text is on the screen: it has a size, and nothing covers the place where it is. */
function isSeen(text, selector) {
  for (const root of document.querySelectorAll(selector)) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const start = node.data.indexOf(text);
      if (start < 0) continue;
      const range = document.createRange();
      range.setStart(node, start);
      range.setEnd(node, start + text.length);
      for (const box of range.getClientRects()) {
        const [x, y] = [box.left + Math.min(box.width / 2, 20), box.top + box.height / 2];
        const top = document.elementFromPoint(x, y);
        if (box.width > 2 && box.height > 2 && node.parentElement.contains(top)) return true;
      }
    }
  }
  return false;
}

/** Whether nothing covers the middle of an element. */
function seenAtItsPlace(node) {
  const { left, top, width, height } = node.getBoundingClientRect();
  return node.contains(document.elementFromPoint(left + width / 2, top + height / 2));
}

/** The first element of that kind with that text. */
function findElement(selector, text) {
  return [...document.querySelectorAll(selector)].find((node) => node.innerText.includes(text));
}

function pixelsOf(selector, x, y, width, height) {
  const context = document.querySelector(selector).getContext('2d');
  const { data } = context.getImageData(x, y, width, height);
  const pixels = [];
  for (let at = 0; at < data.length; at += 4) {
    pixels.push(data[at + 3] < 128 ? '' : [data[at], data[at + 1], data[at + 2]].join());
  }
  return pixels;
}

/** The number of colours of a canvas; 0 if nothing is drawn. */
function colourCount(selector) {
  const { width, height } = document.querySelector(selector);
  return new Set(pixelsOf(selector, 0, 0, width, height).filter(Boolean)).size;
}

/** For some columns of a canvas: the mean height of what is drawn, in pixels from the top. */
function shapeHeights(selector) {
  const { width, height } = document.querySelector(selector), heights = [];
  const pixels = pixelsOf(selector, 0, 0, width, height);
  for (let x = 2; x < width - 2; x += 6) {
    const rows = [...Array(height).keys()].filter((y) => pixels[y * width + x]);
    if (rows.length) heights.push(rows.reduce((sum, y) => sum + y) / rows.length);
  }
  return heights.length > 4 && heights;
}

/** Where a cell of 23 pixels has its most frequent colour: its shape, whatever the colour. */
function cellShape(x, y) {
  const pixels = pixelsOf('rank-grid canvas', x, y, 23, 23), counts = {};
  for (const pixel of pixels) if (pixel) counts[pixel] = (counts[pixel] ?? 0) + 1;
  const [most] = Object.keys(counts).sort((a, b) => counts[b] - counts[a]);
  return pixels.map((pixel) => (pixel === most ? 1 : 0)).join('');
}

/** How the mark of a state is drawn, but for its colour. */
function markShape(mark) {
  const style = getComputedStyle(mark);
  const image = style.backgroundImage.replace(/rgb[^)]*\)/g, '');
  return [style.borderRadius, image, style.borderStyle, style.backgroundColor === 'rgba(0, 0, 0, 0)'].join();
}

/** Points at a place of the page, as a pointer does. */
function pointAt(selector, clientX, clientY) {
  document.querySelector(selector).dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, bubbles: true }));
}

function canvasDescription(selector) {
  return document.getElementById(document.querySelector(selector).getAttribute('aria-describedby')).textContent;
}

/** The element with the focus: its name, whether it has a size, and whether its focus is shown. */
function focusStop() {
  const { width, height } = document.activeElement.getBoundingClientRect();
  const { outlineStyle } = getComputedStyle(document.activeElement);
  return [document.activeElement.tagName, width > 0 && height > 0, outlineStyle !== 'none'];
}

function loadedBytes() {
  const assets = performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/static/'));
  return [...assets, performance.getEntriesByType('navigation')[0]].reduce((sum, entry) => sum + entry.decodedBodySize, 0);
}

/** Draws the grid fifteen times; the middle of the times, in ms. */
function gridPaintTime() {
  const grid = document.querySelector('rank-grid');
  const times = Array.from({ length: 15 }, () => {
    grid.paintNow();
    return grid.paintTime;
  });
  return times.sort((a, b) => a - b)[7];
}

/** Keeps what the page does at intervals from now on, and what it asks for. */
function watchIntervals() {
  const { setInterval: start, fetch: send } = window;
  Object.assign(window, { intervals: [], asked: [], unanswered: 0 });
  window.setInterval = (action, ...rest) => {
    intervals.push(action);
    return start(action, ...rest);
  };
  window.fetch = (address, ...rest) => {
    asked.push(String(address));
    unanswered++;
    const answer = send(address, ...rest);
    answer.then((response) => response.clone().arrayBuffer()).catch(() => {}).then(() => unanswered--);
    return answer;
  };
}

/** What the page asks for when the time of its intervals has come: once all is answered, and observers have been told. */
function askedAtIntervals(done) {
  requestAnimationFrame(() => setTimeout(() => {
    if (unanswered) return askedAtIntervals(done);
    asked.length = 0;
    for (const action of intervals) action();
    return done([...asked]);
  }));
}

/** The texts of a table's cells that are cut off, but for those of columns whose text is a title, too. */
function cutTexts(selector) {
  const cells = [...document.querySelectorAll(selector)].filter((cell) => cell.offsetParent && !cell.title);
  return cells.filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText);
}

/** Makes the page believe that so many ms have passed. */
function passTime(time) {
  const now = performance.now.bind(performance);
  performance.now = () => now() + time;
}

/** Makes the page believe that its tab is hidden, or shown. */
function setHidden(hidden) {
  Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}

/** Jumps to 30 places of the list; for each the ms until a row is seen there. */
function jumpTimes(done) {
  const times = [];
  const jump = (number) => {
    if (number === 30) return done(times);
    const began = performance.now();
    scrollTo(0, (number * 7919 % 30) / 30 * (document.documentElement.scrollHeight - innerHeight));
    const look = () => {
      const seen = document.elementFromPoint(300, innerHeight / 2);
      if (!seen?.closest('tr')?.row) return requestAnimationFrame(look);
      times.push(performance.now() - began);
      return jump(number + 1);
    };
    requestAnimationFrame(look);
  };
  jump(0);
}

/**
 * Frames a second in the best half second, and the median of the ms that the grid's drawings took. It ends as soon as
 * `enough` frames a second were drawn: other programs may have the machine for a while.
 */
function frameRate(enough, done) {
  const paints = [], first = performance.now();
  let frames = 0, began = 0, best = 0;
  const look = (now) => {
    began ||= now;
    frames++;
    paints.push(document.querySelector('rank-grid').paintTime);
    if (now - began > 500) {
      best = Math.max(best, (frames - 1) / (now - began) * 1000);
      [frames, began] = [1, now];
    }
    if (best < enough && performance.now() - first < 10_000) requestAnimationFrame(look);
    else done([best, paints.sort((a, b) => a - b)[paints.length >> 1]]);
  };
  requestAnimationFrame(look);
}

/** The violations of WCAG 2.2 A and AA that axe finds. */
function axeViolations(done) {
  const options = { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'], resultTypes: ['violations'] };
  axe.run(document, options).then(({ violations }) => done(violations.flatMap((rule) => rule.nodes.map((node) =>
    `${rule.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`))), (error) => done([String(error)]));
}
