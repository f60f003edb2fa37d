/** Requests of commands; refusals become notifications, one for several experiments. */
import { Notification } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IExperimentRow } from '../../model/state.js';
import type { IDetJupyter } from '../tokens.js';

export type Args = ReadonlyPartialJSONObject;

const MOST_REASONS = 3;

export function mayChange(det: IDetJupyter): boolean {
  return det.link.state === 'up' && det.link.mayWrite;
}

/** Send a request; show a failure and return `false`. */
export async function ask(request: () => Promise<unknown>): Promise<boolean> {
  try {
    await request();
    return true;
  } catch (error) {
    Notification.error(messageOf(error));
    return false;
  }
}

/** Send a request for each, one after the other; a refusal does not stop the others. */
export async function askEach(
  det: IDetJupyter,
  rows: readonly IExperimentRow[],
  request: (row: IExperimentRow) => Promise<unknown>
): Promise<boolean> {
  if (rows.length === 1) {
    return ask(() => request(rows[0] as IExperimentRow));
  }
  const refused: string[] = [];
  for (const row of rows) {
    await request(row).catch((error: unknown) => refused.push(`#${row.id}: ${messageOf(error)}`));
  }
  if (refused.length > 0) {
    const { trans } = det;
    const more = refused.length - MOST_REASONS;
    Notification.error(
      [
        trans.__('%1 of %2 experiments were not changed.', refused.length, rows.length),
        ...refused.slice(0, MOST_REASONS),
        more > 0 ? trans._n('%1 more.', '%1 more.', more) : ''
      ]
        .filter(Boolean)
        .join(' '),
      { autoClose: 15_000 }
    );
  }
  return refused.length === 0;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
