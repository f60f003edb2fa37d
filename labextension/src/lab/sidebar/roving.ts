/** One of several buttons is reached by Tab, the others from it by the arrow keys. */
import { setAttribute } from '../../dom/dom.js';

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1]
};

/** @param columns - How many are beside each other. */
export function rove(node: HTMLElement, columns: () => number): void {
  node.addEventListener('keydown', event => {
    const all = stopsOf(node);
    const place = all.indexOf(event.target as HTMLElement);
    const step = STEPS[event.key];
    const next =
      event.key === 'Home'
        ? 0
        : event.key === 'End'
          ? all.length - 1
          : step && place + step[0] + step[1] * columns();
    const found = place < 0 || next === undefined ? undefined : all[next];
    if (found !== undefined) {
      found.focus();
      event.preventDefault();
      event.stopPropagation();
    }
  });
  node.addEventListener('focusin', event => makeStop(node, event.target as HTMLElement));
}

/** Have one that Tab reaches, also after others have come. */
export function keepStop(node: HTMLElement): void {
  const all = stopsOf(node);
  const stop = all.find(one => one.tabIndex === 0) ?? all[0];
  if (stop !== undefined) {
    makeStop(node, stop);
  }
}

function makeStop(node: HTMLElement, stop: HTMLElement): void {
  if (stop.matches('[data-rove]')) {
    stopsOf(node).forEach(one => setAttribute(one, 'tabindex', one === stop ? 0 : -1));
  }
}

function stopsOf(node: HTMLElement): HTMLElement[] {
  return [...node.querySelectorAll<HTMLElement>('[data-rove]')];
}
