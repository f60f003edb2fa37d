/** The metrics of an experiment as CSV: the columns of `det experiment export`. */
import type { ICurve } from '../../model/answers.js';

const COLUMNS = ['trial', 'group', 'steps', 'epoch', 'time', 'metric', 'value'];

/** A row for each value, curve by curve. */
export function metricsTable(curves: readonly ICurve[], quoted: (text: string) => string): string {
  const lengths = new Map<number, number>();
  curves.forEach(({ trial_id: trial, steps_per_epoch: length }) => {
    if (length !== null) {
      lengths.set(trial, length);
    }
  });
  const rows = curves.flatMap(({ trial_id: trial, group, name, steps, values, times }) => {
    const length = lengths.get(trial);
    return steps.map((step, i) =>
      [
        trial,
        quoted(group),
        step,
        length === undefined ? '' : step / length,
        times[i] ?? '',
        quoted(name),
        values[i] ?? ''
      ].join(',')
    );
  });
  return [COLUMNS.join(','), ...rows, ''].join('\r\n');
}
