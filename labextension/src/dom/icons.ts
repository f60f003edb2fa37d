/** Icons of states, slots and verbs, distinct without colour; 16 by 16 units. */
import { drawing } from './dom.js';
import type { SlotState } from '../model/state.js';
import type { Status, Verb } from '../model/state.js';

interface IShape {
  fill?: string;
  stroke?: string;
  dash?: string;
}

const CIRCLE = 'M8 1.75a6.25 6.25 0 1 1 0 12.5a6.25 6.25 0 1 1 0-12.5z';
const BARS = 'M4 3h2.75v10H4zM9.25 3H12v10H9.25z';
const PLAY = 'M4.5 2.6v10.8L13.2 8z';
const CROSS = 'M5.5 5.5l5 5M10.5 5.5l-5 5';

const SHAPES: Record<
  Status | Verb | SlotState | 'own' | 'copy' | 'close' | 'bell' | 'info',
  IShape
> = {
  queued: { stroke: `${CIRCLE}M8 4.5V8l2.4 1.6` },
  starting: { stroke: CIRCLE, dash: '2.4 1.9' },
  running: { fill: PLAY },
  pausing: { stroke: BARS },
  paused: { fill: BARS },
  resting: { stroke: 'M12.6 10.2A5.6 5.6 0 1 1 6.2 2.9a4.6 4.6 0 0 0 6.4 7.3z' },
  stopping: { stroke: 'M3.5 3.5h9v9h-9z' },
  completed: { stroke: `${CIRCLE}M5 8.2l2.1 2.1L11 6.2` },
  stopped: { fill: 'M4 4h8v8H4z' },
  canceled: { stroke: `${CIRCLE}M3.8 3.8l8.4 8.4` },
  error: { stroke: `${CIRCLE}${CROSS}` },
  pause: { fill: BARS },
  activate: { fill: PLAY },
  kill: { fill: 'M3.5 3.5h9v9h-9z' },
  own: { fill: 'M8 1.6l1.9 4.3 4.6.4-3.5 3 1.1 4.6L8 11.5l-4.1 2.4L5 9.3 1.5 6.3l4.6-.4z' },
  used: { fill: 'M8 3a5 5 0 1 1 0 10a5 5 0 1 1 0-10z' },
  leaving: { stroke: 'M6 2.75H2.75v10.5H6M6 8h7.25M10 4.75L13.25 8L10 11.25' },
  occupied: { stroke: 'M8 2L14.5 13.5H1.5zM8 6.2v3.4M8 11.6v.1' },
  lost: { stroke: `${CIRCLE}${CROSS}` },
  disabled: { stroke: `${CIRCLE}M3.8 3.8l8.4 8.4` },
  free: { stroke: CIRCLE },
  info: { stroke: `${CIRCLE}M8 7.5v3.6M8 4.9v.1` },
  copy: { stroke: 'M5.5 5.5h7v8h-7zM3.5 10.5v-8h7' },
  bell: {
    stroke:
      'M3 11.5h10c-1.2-1.2-1.5-2.4-1.5-4.5a3.5 3.5 0 0 0-7 0c0 2.1-.3 3.3-1.5 4.5zM6.6 13.6h2.8'
  },
  close: { stroke: 'M4 4l8 8M12 4l-8 8' }
};

export function icon(name: keyof typeof SHAPES): SVGSVGElement {
  const { fill, stroke, dash = null } = SHAPES[name];
  const line = { 'stroke-width': 1.5, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' };
  return drawing(
    { viewBox: '0 0 16 16', class: 'det-icon' },
    {
      d: fill ?? stroke ?? '',
      fill: fill ? 'currentColor' : 'none',
      'stroke-dasharray': dash,
      ...(stroke ? { stroke: 'currentColor', ...line } : {})
    }
  );
}
