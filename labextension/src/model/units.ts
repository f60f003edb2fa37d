/** Formats measured values with their units. */
import { formatNumber, formatSize } from './format.js';

const TIMES: [number, string][] = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs']
];

/** Formats a short duration: 1.20 s, 34.5 ms, 120 µs. */
export function formatSeconds(seconds: number): string {
  const size = Math.abs(seconds);
  if (size === 0) {
    return '0';
  }
  const [unit, word] = TIMES.find(([least]) => size >= least * 0.9995) ?? [1e-6, 'µs'];
  const value = seconds / unit;
  return `${value >= 1000 ? Math.round(value) : Number(value.toPrecision(3))} ${word}`;
}

/** Formats a value of a unit in measures.py. */
export function formatMeasure(value: number, unit: string): string {
  switch (unit) {
    case 's':
      return formatSeconds(value);
    case 'bytes':
      return signed(value, formatSize);
    case 'bytes/s':
      return signed(value, size => `${formatSize(size)}/s`);
    case '%':
      return `${short(value)} %`;
    case '':
      return short(value);
    case '1/s':
      return `${short(value)}/s`;
    default:
      return `${short(value)} ${unit}`;
  }
}

function signed(value: number, text: (size: number) => string): string {
  return value < 0 ? `−${text(-value)}` : text(value);
}

function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 && size < 1e6) {
    return String(Math.round(value));
  }
  return size >= 1e6 || (size > 0 && size < 1e-3)
    ? formatNumber(value)
    : String(Number(value.toPrecision(3)));
}

/** Capitalizes a clause and adds a full stop. */
export function asSentence(text: string): string {
  return /[.…?!]$/.test(text) ? capitalized(text) : `${capitalized(text)}.`;
}

/** Capitalizes the first letter. */
export function capitalized(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
