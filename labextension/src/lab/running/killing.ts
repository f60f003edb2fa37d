/** Kills trials, after a confirmation. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import type { IDetJupyter } from '../tokens.js';

type Det = Pick<IDetJupyter, 'api' | 'settings' | 'trans'>;

/** Kill a trial if the user confirms it; returns whether the request was sent. */
export async function killTrial(det: Det, trialId: number, name = ''): Promise<boolean> {
  const { settings, trans } = det;
  const about = trans.__('It ends at once. What it has not saved is lost.');
  if (settings.get('confirmKill')) {
    const { button } = await showDialog({
      title: trans.__('Kill trial %1?', trialId),
      body: name === '' ? about : `${name}: ${about}`,
      buttons: [
        Dialog.cancelButton({ label: trans.__('Keep It') }),
        Dialog.warnButton({ label: trans.__('Kill') })
      ],
      defaultButton: 0
    });
    if (!button.accept) {
      return false;
    }
  }
  return killAll(det, [trialId]);
}

/** Kill trials without confirmation; refusals are shown in one notification. */
export async function killAll(
  { api, trans }: Pick<Det, 'api' | 'trans'>,
  trialIds: readonly number[]
): Promise<boolean> {
  const asked = await Promise.allSettled(trialIds.map(id => api.post(`api/trials/${id}/kill`)));
  const refused = asked.flatMap(one =>
    one.status === 'rejected' ? [(one.reason as Error).message] : []
  );
  const [why] = refused;
  if (why !== undefined) {
    const others = refused.length - 1;
    Notification.error(
      others === 0 ? why : trans._n('%2 (and %1 other)', '%2 (and %1 others)', others, why)
    );
  }
  return refused.length === 0;
}
