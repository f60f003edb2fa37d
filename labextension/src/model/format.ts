/** Formats numbers, as det_jupyter/contract/values/text.py does. */

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** Formats a metric with four digits; `NaN` for `null`. */
export function formatNumber(value: number | null): string {
  if (value === null || !Number.isFinite(value)) {
    return 'NaN';
  }
  const size = Math.abs(value);
  if (size === 0) {
    return '0';
  }
  if (size < 1e-3 || size >= 1e6) {
    return value.toExponential(2);
  }
  return value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size))));
}

/** Formats a duration: 1:15, 1:02:03, 2 d 7:33:20. */
export function formatDuration(seconds: number): string {
  const whole = Math.floor(Math.max(0, seconds));
  const second = String(whole % 60).padStart(2, '0');
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (hours === 0) {
    return `${minutes}:${second}`;
  }
  const clock = `${hours % 24}:${String(minutes % 60).padStart(2, '0')}:${second}`;
  return hours < 24 ? clock : `${Math.floor(hours / 24)} d ${clock}`;
}

/** Formats a number of bytes with a unit. */
export function formatSize(numBytes: number): string {
  let unit = 0;
  while (numBytes >= 999.5 && unit < UNITS.length - 1) {
    numBytes /= 1000;
    unit += 1;
  }
  return `${numBytes.toFixed(unit > 0 && numBytes < 9.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** Formats a fraction in percent, rounded down, so that 100 % means done. */
export function formatPercent(fraction: number): string {
  return `${Math.floor(fraction * 100 + 1e-6)} %`;
}

/** Formats a time of day, in the browser's time zone. */
export function formatClock(at: number): string {
  return new Date(at * 1000).toTimeString().slice(0, 8);
}

/** Formats a duration briefly: 0, 45 s, 1.5 min, 2 h, 3 d. */
export function spanText(seconds: number): string {
  const units: [number, string][] = [
    [86_400, 'd'],
    [3600, 'h'],
    [60, 'min']
  ];
  const found = units.find(([size]) => seconds >= size);
  if (seconds === 0) {
    return '0';
  }
  return found === undefined
    ? `${seconds} s`
    : `${Number((seconds / found[0]).toFixed(1))} ${found[1]}`;
}
