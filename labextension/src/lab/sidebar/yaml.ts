/** Formats JSON values as YAML. */

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

const PLAIN = /^[A-Za-z_./][\w./ -]*$/;
const WORDS = new Set(['true', 'false', 'null', 'yes', 'no', 'on', 'off', '~', 'y', 'n']);

/** @param value - A parsed JSON value. */
export function toYaml(value: unknown): string {
  return `${block(value as Json, '').replace(/^\n/, '')}\n`;
}

function block(value: Json, indent: string): string {
  if (Array.isArray(value)) {
    return value.every(isScalar)
      ? ` [${value.map(scalar).join(', ')}]`
      : value.map(one => `\n${indent}-${item(one, indent)}`).join('');
  }
  if (typeof value === 'object' && value !== null) {
    const entries = Object.entries(value);
    return entries.length === 0
      ? ' {}'
      : entries
          .map(([key, one]) => `\n${indent}${scalar(key)}:${block(one, `${indent}  `)}`)
          .join('');
  }
  return ` ${scalar(value)}`;
}

/** An item of a list, whose first key is beside the dash. */
function item(value: Json, indent: string): string {
  return block(value, `${indent}  `).replace(/^\n\s*/, ' ');
}

function isScalar(value: Json): value is string | number | boolean | null {
  return typeof value !== 'object' || value === null;
}

function scalar(value: Json): string {
  if (typeof value !== 'string') {
    return JSON.stringify(value);
  }
  const isPlain = PLAIN.test(value) && !value.endsWith(' ') && !WORDS.has(value.toLowerCase());
  return isPlain ? value : JSON.stringify(value);
}
