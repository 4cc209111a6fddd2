/** The theme: light or dark, as drawings need it. */

/** What the colours depend on. */
export const themes = [
  matchMedia('(prefers-color-scheme: dark)'),
  matchMedia('(prefers-contrast: more)'),
  matchMedia('(forced-colors: active)'),
];

const NAMES = ['run', 'done', 'bad', 'wait', 'idle', 'accent', 'text', 'muted', 'line', 'surface', 'sunken'];

/** The colours of the theme, by the names of the variables in style.css. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    [...NAMES, ...Array.from('01234567', (index) => `run-${index}`)].map((name) => [
      name,
      style.getPropertyValue(`--${name}`).trim(),
    ]),
  );
}
