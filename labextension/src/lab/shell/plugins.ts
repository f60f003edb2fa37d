import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

export const shellPlugins: JupyterFrontEndPlugin<unknown>[] = [];
